/* Dense networks with few outputs, for kernel.h: the same sums as there, with inputs or samples side by side in the lanes of a
   vector, most of which would be padding if outputs were. */

#define transpose OWN(transpose)
#define thin_tile OWN(thin_tile)
#define thin OWN(thin)
#define differentiate_few OWN(differentiate_few)

/* A square's rows become its columns: as often as LANES can be halved, its two halves are interleaved. */
INLINE void transpose(vector *rows) {
    for (int halves = 1; halves < LANES; halves *= 2) {
        vector next[LANES];
        for (int i = 0; i < LANES / 2; i++) {
            next[2 * i] = SHUFFLE(rows[i], rows[i + LANES / 2], LOWER);
            next[2 * i + 1] = SHUFFLE(rows[i], rows[i + LANES / 2], UPPER);
        }
        for (int i = 0; i < LANES; i++) rows[i] = next[i];
    }
}

/* Columns j0 and those after it of aᵀ b, for 2 * LANES of a's columns, which lie side by side in the lanes. */
INLINE void thin_tile(const int columns, const product *of, int64_t i0, int64_t j0, vector (*sums)[FEW]) {
    vector sum[MOST_ROWS][2];
    for (int j = 0; j < columns; j++) sum[j][0] = sum[j][1] = (vector){0};
    for (int64_t p = 0; p < of->k; p++) {
        const float *a = of->a[p] + i0, *b = of->b + p * of->n + j0;
        const vector left[2] = {*(const vector *)a, *(const vector *)(a + LANES)};
        for (int j = 0; j < columns; j++)
            for (int side = 0; side < 2; side++)
                sum[j][side] = MULTIPLY_ADD(left[side], b[j] - (vector){0}, sum[j][side]);
    }
    for (int j = 0; j < columns; j++)
        for (int side = 0; side < 2; side++) sums[side][j0 + j] = sum[j][side];
}

/* What adds, where b has few columns: tiles of `multiply` would be padding for the most part. The sums are the same.
   columns: of b that are no padding. Returns how many of the rows are done: all but less than 2 * LANES. */
OUTLINE int64_t thin(const product given, int64_t columns) {
    const product *of = &given;
    int64_t i = 0;
    for (; i + 2 * LANES <= of->m; i += 2 * LANES) {
        vector sums[2][FEW] = {0};
        for (int64_t j = 0; j < columns; j += MOST_ROWS)
            switch (columns - j < MOST_ROWS ? columns - j : MOST_ROWS) {
            case 1: thin_tile(1, of, i, j, sums); break;
            case 2: thin_tile(2, of, i, j, sums); break;
            case 3: thin_tile(3, of, i, j, sums); break;
            case 4: thin_tile(4, of, i, j, sums); break;
#if MOST_ROWS > 4
            case 5: thin_tile(5, of, i, j, sums); break;
            case 6: thin_tile(6, of, i, j, sums); break;
#endif
#if MOST_ROWS > 6
            case 7: thin_tile(7, of, i, j, sums); break;
            case 8: thin_tile(8, of, i, j, sums); break;
#endif
            }
        for (int side = 0; side < 2; side++)
            for (int64_t j = 0; j < of->n; j += LANES) {
                transpose(sums[side] + j);
                for (int row = 0; row < LANES; row++) {
                    const int64_t at = (i + side * LANES + row) * of->n + j;
                    vector *out = (vector *)(of->out + at), *weights = (vector *)(of->weights + at);
                    *out = MULTIPLY_ADD(of->momentum - (vector){0}, *out, sums[side][j + row]);
                    if (of->weights) *weights = MULTIPLY_ADD(-of->rate - (vector){0}, *out, *weights);
                }
            }
    }
    return i;
}

/* The derivatives of `differentiate`, by the same sums, for FEW outputs at most: of as many samples at a time as there are
   lanes. */
OUTLINE void differentiate_few(float *outputs, int64_t batch, int64_t n, const float *const *samples, int64_t expected) {
    for (int64_t i = 0; i < batch; i += LANES) {
        const int64_t lanes = batch - i < LANES ? batch - i : LANES, width = padded(n);
        vector z[FEW] = {0}, sum = {0};
        float *out = outputs + i * width;
        for (int64_t j = 0; j < width; j += LANES) {
            for (int64_t lane = 0; lane < lanes; lane++) z[j + lane] = *(const vector *)(out + lane * width + j);
            transpose(z + j);
        }
        vector most = z[0];
        for (int64_t j = 1; j < n; j++) {
            const integers above = z[j] > most;
            most = (vector)((above & (integers)z[j]) | (~above & (integers)most));
        }
        for (int64_t j = 0; j < n; j++) z[j] = exponential(z[j] - most, 0.0f), sum += z[j];
        for (int64_t j = 0; j < n; j++) z[j] /= sum;
        for (int64_t j = n; j < width; j++) z[j] = (vector){0};
        for (int64_t j = 0; j < width; j += LANES) transpose(z + j);
        for (int64_t lane = 0; lane < lanes; lane++) {
            float wanted[FEW] = {0.0f};
            memcpy(wanted, samples[i + lane] + expected, (size_t)n * sizeof(float));
            for (int64_t j = 0; j < width; j += LANES)
                *(vector *)(out + lane * width + j) = (z[j + lane] - *(const vector *)(wanted + j)) / (float)batch;
        }
    }
}
