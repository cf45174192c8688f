/* Convolutions of 3 × 3 and of 5 × 5 pixels that keep an image's size, by Winograd's algorithm (Lavin and Gray 2016).

   A tile of 4 × 4 outputs follows from 6 × 6 or 8 × 8 pixels. Rows and columns are taken as polynomials, at 6 or 8 points
   (`points.h`), where a convolution is a product: 2.25 or 4 for each output, in the place of 9 or 25. What is left is a
   product of matrices, (tiles, inputs) by (inputs, outputs), for each pair of points. Images are (samples, height, width,
   channels), channels side by side and a multiple of 16. Every number is the same sum in the same order in any width.
   This file is included for kernels of 3 × 3 pixels (POINTS 6) and of 5 × 5 (POINTS 8). */

#define weighted SIZED(weighted)
#define at_points SIZED(at_points)
#define from_points SIZED(from_points)
#define spread SIZED(spread)
#define spread_around SIZED(spread_around)
#define spread_tiles SIZED(spread_tiles)
#define spread_kernel SIZED(spread_kernel)
#define gather SIZED(gather)
#define gather_kernel SIZED(gather_kernel)
#define workplace SIZED(workplace)
#define set_up SIZED(set_up)

/* The products of every element of a row from `first` on, `step` by `step`, with vectors that lie `apart`, added up; zeros
   cost nothing. */
INLINE vector weighted(const float *row, const int first, const int step, const int count, const vector *x, int64_t apart) {
    vector sum = {0};
    UNROLL for (int k = first; k < count; k += step)
        if (row[k] != 0.0f) sum = MULTIPLY_ADD(row[k] - (vector){0}, x[k * apart], sum);
    return sum;
}

/* out[i] = Σ_k matrix[i, k] x[k] for all points i. */
INLINE void at_points(const float *matrix, const int count, const vector *x, int64_t apart, vector *out, int64_t out_apart) {
    out[0] = weighted(matrix, 0, 1, count, x, apart);
    UNROLL for (int i = 1; i < POINTS - 1; i += 2) {
        const vector even = weighted(matrix + i * count, 0, 2, count, x, apart);
        const vector odd = weighted(matrix + i * count, 1, 2, count, x, apart);
        out[i * out_apart] = even + odd, out[(i + 1) * out_apart] = even - odd;
    }
    out[(POINTS - 1) * out_apart] = weighted(matrix + (POINTS - 1) * count, 0, 1, count, x, apart);
}

/* out[k] = Σ_i matrix[i, k] x[i] over all points i. */
INLINE void from_points(const float *matrix, const int count, const vector *x, int64_t apart, vector *out,
                        const int out_apart) {
    vector sums[2][POINTS / 2];
    UNROLL for (int i = 1; i < POINTS - 1; i += 2) {
        sums[0][i / 2] = x[i * apart] + x[(i + 1) * apart];
        sums[1][i / 2] = x[i * apart] - x[(i + 1) * apart];
    }
    UNROLL for (int k = 0; k < count; k++) {
        vector sum = {0};
        UNROLL for (int i = 1; i < POINTS - 1; i += 2)
            sum = MULTIPLY_ADD(matrix[i * count + k] - (vector){0}, sums[k % 2][i / 2], sum);
        if (matrix[k] != 0.0f) sum += x[0];
        if (matrix[(POINTS - 1) * count + k] != 0.0f) sum += x[(POINTS - 1) * apart];
        out[k * out_apart] = sum;
    }
}

/* Squares of pixels at all pairs of points, (PAIRS, tiles, channels). A square begins `margin` pixels before its tile, and
   has zeros outside of its image: whole images are copied into a frame of zeros first. */
INLINE void spread(const float *matrix, const int side, const int margin, const float *images, const pictures *of,
                   int64_t channels, int64_t first, int64_t count, float *frame, float *out) {
    const int64_t line = of->width * channels, framed = FRAME(of->width) * channels;
    const int64_t apart = (BLOCK * channels + EDGE) / LANES;
    int64_t held = first ? spot_of(of, first - 1).sample : -1; /* the image in the frame */
    for (int64_t t = 0; t < count; t++) {
        const spot at = spot_of(of, first + t);
        for (int64_t r = 0; at.sample != held && r < of->height; r++)
            memcpy(frame + (r + margin) * framed + margin * channels, images + (at.sample * of->height + r) * line,
                   (size_t)line * sizeof(float));
        held = at.sample;
        const float *corner = frame + at.row * framed + at.column * channels;
        for (int64_t c = 0; c < channels; c += LANES) {
            vector half[POINTS * side];
            for (int j = 0; j < side; j++)
                at_points(matrix, side, (const vector *)(corner + j * channels + c), framed / LANES, half + j, side);
            for (int i = 0; i < POINTS; i++)
                at_points(matrix, side, half + i * side, 1, (vector *)(out + t * channels + c) + i * POINTS * apart, apart);
        }
    }
}

OUTLINE void spread_around(const float *images, const pictures *of, int64_t channels, int64_t first, int64_t count,
                           float *frame, float *out) {
    spread(MATRIX(PIXELS), POINTS, SIDE / 2, images, of, channels, first, count, frame, out);
}

OUTLINE void spread_tiles(const float *images, const pictures *of, int64_t channels, int64_t first, int64_t count,
                          float *frame, float *out) {
    spread(MATRIX(OUTPUTS), TILE, 0, images, of, channels, first, count, frame, out);
}

/* A convolution's kernel at all pairs of points, (PAIRS, inputs, outputs); turned is that of its derivative by inputs. */
OUTLINE void spread_kernel(const float *kernel, int64_t turned, int64_t inputs, int64_t outputs, float *out) {
    const int64_t apart = (inputs * outputs + EDGE) / LANES;
    for (int64_t p = 0; p < inputs; p++)
        for (int64_t q = 0; q < outputs; q += LANES) {
            float lanes[SIDE * SIDE][LANES];
            vector half[POINTS * SIDE];
            for (int j = 0; j < LANES; j++) {
                const float *one = kernel + (turned ? p * outputs + q + j : (q + j) * inputs + p) * SIDE * SIDE;
                for (int k = 0; k < SIDE * SIDE; k++) lanes[k][j] = one[turned ? SIDE * SIDE - 1 - k : k];
            }
            for (int j = 0; j < SIDE; j++) at_points(MATRIX(KERNEL), SIDE, (vector *)lanes + j, SIDE, half + j, SIDE);
            vector *values = (vector *)(out + p * outputs + q);
            for (int i = 0; i < POINTS; i++)
                at_points(MATRIX(KERNEL), SIDE, half + i * SIDE, 1, values + i * POINTS * apart, apart);
        }
}

/* Tiles of outputs from their values at all pairs of points, a bias added if there is one. */
OUTLINE void gather(const float *values, const float *bias, const pictures *of, int64_t channels, int64_t first,
                    int64_t count, float *images) {
    const int64_t apart = (BLOCK * channels + EDGE) / LANES;
    for (int64_t t = 0; t < count; t++) {
        const spot at = spot_of(of, first + t);
        float *corner = images + ((at.sample * of->height + at.row) * of->width + at.column) * channels;
        for (int64_t c = 0; c < channels; c += LANES) {
            vector half[POINTS * TILE], out[TILE];
            for (int i = 0; i < POINTS; i++)
                from_points(MATRIX(OUTPUTS), TILE, (const vector *)(values + t * channels + c) + i * POINTS * apart, apart,
                            half + i * TILE, 1);
            const vector shift = bias ? *(const vector *)(bias + c) : (vector){0};
            for (int j = 0; j < TILE && at.column + j < of->width; j++) {
                from_points(MATRIX(OUTPUTS), TILE, half + j, TILE, out, 1);
                for (int i = 0; i < TILE && at.row + i < of->height; i++)
                    *(vector *)(corner + (i * of->width + j) * channels + c) = out[i] + shift;
            }
        }
    }
}

/* The derivative by a kernel from that by its values at all pairs of points. */
OUTLINE void gather_kernel(const float *values, int64_t inputs, int64_t outputs, float *kernel) {
    const int64_t apart = (inputs * outputs + EDGE) / LANES;
    for (int64_t p = 0; p < inputs; p++)
        for (int64_t q = 0; q < outputs; q += LANES) {
            vector half[POINTS * SIDE], out[SIDE * SIDE];
            for (int i = 0; i < POINTS; i++)
                from_points(MATRIX(KERNEL), SIDE, (const vector *)(values + p * outputs + q) + i * POINTS * apart, apart,
                            half + i * SIDE, 1);
            for (int j = 0; j < SIDE; j++) from_points(MATRIX(KERNEL), SIDE, half + j, SIDE, out + j, SIDE);
            for (int j = 0; j < LANES; j++)
                for (int k = 0; k < SIDE * SIDE; k++) kernel[((q + j) * inputs + p) * SIDE * SIDE + k] = out[k][j];
        }
}

/* What a convolution works in: its kernel and a block of tiles at all pairs of points, where rows of tiles begin, and a frame
   of zeros for an image of inputs and for one of outputs. */
typedef struct {
    float *kernel, *in, *out, *frame_in, *frame_out;
    const float **rows; /* (PAIRS, BLOCK), of `in` */
} workplace;

INLINE int set_up(workplace *at, const pictures *of, int64_t inputs, int64_t outputs) {
    const int64_t in = BLOCK * inputs + EDGE, out = BLOCK * outputs + EDGE, kernel = inputs * outputs + EDGE;
    const int64_t frame = FRAME(of->height) * FRAME(of->width), numbers = PAIRS * (kernel + in + out);
    const int64_t all = numbers + frame * (inputs + outputs);
    at->kernel = aligned_alloc(64, (size_t)all * sizeof(float)); /* 64: a line of the cache */
    at->rows = malloc((size_t)(PAIRS * BLOCK) * sizeof(float *));
    if (!at->kernel || !at->rows) return 0;
    at->in = at->kernel + PAIRS * kernel, at->out = at->in + PAIRS * in;
    at->frame_in = at->kernel + numbers, at->frame_out = at->frame_in + frame * inputs;
    memset(at->frame_in, 0, (size_t)(frame * (inputs + outputs)) * sizeof(float));
    for (int64_t i = 0; i < PAIRS * BLOCK; i++) at->rows[i] = at->in + i / BLOCK * in + i % BLOCK * inputs;
    return 1;
}

/* y = x convolved with a kernel of (outputs, inputs, SIDE, SIDE), and a bias added, or 0 for none. turned: x is a derivative
   by outputs of a convolution with a kernel of (inputs, outputs, SIDE, SIDE), and y the one by its inputs. Returns 0, or 1 if
   there is not enough memory. */
TARGET int SIZED(nestegg_convolve)(const float *x, const float *kernel, const float *bias, int64_t samples, int64_t height,
                                   int64_t width, int64_t inputs, int64_t outputs, int64_t turned, float *y) {
    const pictures of = cut(samples, height, width);
    workplace at;
    const int ready = set_up(&at, &of, inputs, outputs);
    if (ready) spread_kernel(kernel, turned, inputs, outputs, at.kernel);
    for (int64_t first = 0; ready && first < of.tiles; first += BLOCK) {
        const int64_t count = of.tiles - first < BLOCK ? of.tiles - first : BLOCK;
        spread_around(x, &of, inputs, first, count, at.frame_in, at.in);
        const product one = {.m = count, .n = outputs, .k = inputs, .a = at.rows, .b = at.kernel, .out = at.out};
        multiply_each(one, PAIRS, inputs * outputs + EDGE, BLOCK * outputs + EDGE);
        gather(at.out, bias, &of, outputs, first, count, y);
    }
    free(at.kernel), free(at.rows);
    return !ready;
}

/* The derivatives of `nestegg_convolve` by kernel and bias; dbias may be 0. Returns 0, or 1 if there is not enough memory. */
TARGET int SIZED(nestegg_convolve_back)(const float *x, const float *dy, int64_t samples, int64_t height, int64_t width,
                                        int64_t inputs, int64_t outputs, float *dkernel, float *dbias) {
    const pictures of = cut(samples, height, width);
    workplace at;
    double sums[outputs];
    for (int64_t c = 0; c < outputs; c++) sums[c] = 0.0;
    const int ready = set_up(&at, &of, inputs, outputs);
    if (ready) memset(at.kernel, 0, (size_t)(PAIRS * (inputs * outputs + EDGE)) * sizeof(float));
    for (int64_t first = 0; ready && first < of.tiles; first += BLOCK) {
        const int64_t count = of.tiles - first < BLOCK ? of.tiles - first : BLOCK;
        spread_around(x, &of, inputs, first, count, at.frame_in, at.in);
        spread_tiles(dy, &of, outputs, first, count, at.frame_out, at.out);
        const product one = {.m = inputs, .n = outputs, .k = count, .a = at.rows, .b = at.out, .out = at.kernel, .adds = 1,
                             .momentum = 1.0f};
        multiply_each(one, PAIRS, BLOCK * outputs + EDGE, inputs * outputs + EDGE);
        const float *at_one = at.out + (POINTS + 1) * (BLOCK * outputs + EDGE); /* a polynomial at 1 is the sum of a tile */
        for (int64_t i = 0; i < count; i++)
            for (int64_t c = 0; c < outputs; c++) sums[c] += at_one[i * outputs + c];
    }
    if (ready) gather_kernel(at.kernel, inputs, outputs, dkernel);
    for (int64_t c = 0; dbias && c < outputs; c++) dbias[c] = (float)sums[c];
    free(at.kernel), free(at.rows);
    return !ready;
}

#undef POINTS
