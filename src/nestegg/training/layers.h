/* Parts of convolutional networks that only move memory, each in as few passes as will do: group normalisation with its
   rectifier, and pooling by the maximum with its. Images are (samples, pixels, channels), channels side by side and a
   multiple of LANES. A lane is a channel, and a channel's pixels are added up in the same order in every width. */

#define bytes OWN(bytes)
#define at_least_zero OWN(at_least_zero)
#define where_not OWN(where_not)
#define add_up OWN(add_up)
#define moments_of OWN(moments_of)
#define gradients_of OWN(gradients_of)

typedef int8_t bytes __attribute__((vector_size(LANES), aligned(1), may_alias));

#define PARTS 4 /* of a sum over pixels, which do not wait for one another */

INLINE vector at_least_zero(vector x) { return (vector)(~(x < 0.0f) & (integers)x); } /* NaN stays */

INLINE vector where_not(integers dropped, vector x) { return (vector)(~dropped & (integers)x); }

INLINE void add_up(const vector *parts, double *sums) {
    const vector sum = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    for (int j = 0; j < LANES; j++) sums[j] = sum[j];
}

/* Sums of a sample's pixels and of their squares, channel by channel. */
INLINE void moments_of(const float *x, int64_t pixels, int64_t channels, double *sums, double *squares) {
    for (int64_t c = 0; c < channels; c += LANES) {
        vector sum[PARTS] = {0}, square[PARTS] = {0};
        for (int64_t p = 0; p < pixels; p += PARTS)
            for (int k = 0; k < PARTS && p + k < pixels; k++) {
                const vector one = *(const vector *)(x + (p + k) * channels + c);
                sum[k] += one, square[k] = MULTIPLY_ADD(one, one, square[k]);
            }
        add_up(sum, sums + c), add_up(square, squares + c);
    }
}

/* y = max(x * scale + shift + beside, 0) with scale and shift by which every group of channels of a sample has mean 0 and
   variance 1 before weight and bias. beside: what is added, or 0 for nothing. moments: (samples, groups, 2): mean and
   inverse of the standard deviation, for `nestegg_norm_back`. */
TARGET void OWN(nestegg_norm)(const float *x, const float *beside, const float *weight, const float *bias, int64_t samples,
                              int64_t pixels, int64_t channels, int64_t groups, double least, float *y, float *moments) {
    const int64_t width = channels / groups, numbers = pixels * channels;
    double sums[channels], squares[channels];
    float scale[channels], shift[channels];
    for (int64_t i = 0; i < samples; i++, x += numbers, y += numbers, moments += 2 * groups) {
        moments_of(x, pixels, channels, sums, squares);
        for (int64_t g = 0; g < groups; g++) {
            double sum = 0.0, square = 0.0;
            for (int64_t c = g * width; c < (g + 1) * width; c++) sum += sums[c], square += squares[c];
            const double mean = sum / (double)(pixels * width), variance = square / (double)(pixels * width) - mean * mean;
            const double inverse = 1.0 / sqrt((variance < 0.0 ? 0.0 : variance) + least);
            moments[2 * g] = (float)mean, moments[2 * g + 1] = (float)inverse;
            for (int64_t c = g * width; c < (g + 1) * width; c++)
                scale[c] = (float)(inverse * weight[c]), shift[c] = (float)(bias[c] - mean * inverse * weight[c]);
        }
        for (int64_t at = 0; at < numbers; at += channels)
            for (int64_t c = 0; c < channels; c += LANES) {
                const vector s = *(vector *)(scale + c), b = *(vector *)(shift + c);
                vector z = MULTIPLY_ADD(*(const vector *)(x + at + c), s, b);
                if (beside) z += *(const vector *)(beside + at + c);
                *(vector *)(y + at + c) = at_least_zero(z);
            }
        if (beside) beside += numbers;
    }
}

/* Sums of a sample's derivatives by what was rectified, and of their products with x, channel by channel. */
INLINE void gradients_of(const float *x, const float *y, const float *dy, int64_t pixels, int64_t channels, double *sums,
                         double *products) {
    for (int64_t c = 0; c < channels; c += LANES) {
        vector sum[PARTS] = {0}, with_x[PARTS] = {0};
        for (int64_t p = 0; p < pixels; p += PARTS)
            for (int k = 0; k < PARTS && p + k < pixels; k++) {
                const int64_t at = (p + k) * channels + c;
                const vector dz = where_not(*(const vector *)(y + at) <= 0.0f, *(const vector *)(dy + at));
                sum[k] += dz, with_x[k] = MULTIPLY_ADD(dz, *(const vector *)(x + at), with_x[k]);
            }
        add_up(sum, sums + c), add_up(with_x, products + c);
    }
}

/* The derivatives of `nestegg_norm`: dx; dbeside, or 0 if there is none; of weight and bias, summed over samples. */
TARGET void OWN(nestegg_norm_back)(const float *x, const float *y, const float *dy, const float *weight,
                                   const float *moments, int64_t samples, int64_t pixels, int64_t channels, int64_t groups,
                                   float *dx, float *dbeside, float *dweight, float *dbias) {
    const int64_t width = channels / groups, numbers = pixels * channels;
    double sums[channels], products[channels], weights[channels], biases[channels];
    float of_dz[channels], of_x[channels], alone[channels];
    for (int64_t c = 0; c < channels; c++) weights[c] = biases[c] = 0.0;
    for (int64_t i = 0; i < samples; i++, x += numbers, y += numbers, dy += numbers, dx += numbers, moments += 2 * groups) {
        gradients_of(x, y, dy, pixels, channels, sums, products);
        for (int64_t g = 0; g < groups; g++) {
            const double mean = moments[2 * g], inverse = moments[2 * g + 1], count = (double)(pixels * width);
            double sum = 0.0, with_x = 0.0; /* of derivatives by what is normalised */
            for (int64_t c = g * width; c < (g + 1) * width; c++) {
                sum += weight[c] * sums[c], with_x += weight[c] * products[c];
                weights[c] += (products[c] - mean * sums[c]) * inverse, biases[c] += sums[c];
            }
            const double slope = (sum * mean - with_x) * inverse * inverse * inverse / count;
            for (int64_t c = g * width; c < (g + 1) * width; c++) {
                of_dz[c] = (float)(inverse * weight[c]), of_x[c] = (float)slope;
                alone[c] = (float)(-slope * mean - sum * inverse / count);
            }
        }
        for (int64_t at = 0; at < numbers; at += channels)
            for (int64_t c = 0; c < channels; c += LANES) {
                const vector dz = where_not(*(const vector *)(y + at + c) <= 0.0f, *(const vector *)(dy + at + c));
                const vector rest = MULTIPLY_ADD(*(const vector *)(x + at + c), *(vector *)(of_x + c), *(vector *)(alone + c));
                *(vector *)(dx + at + c) = MULTIPLY_ADD(dz, *(vector *)(of_dz + c), rest);
                if (dbeside) *(vector *)(dbeside + at + c) = dz;
            }
        if (dbeside) dbeside += numbers;
    }
    for (int64_t c = 0; c < channels; c++) dweight[c] = (float)weights[c], dbias[c] = (float)biases[c];
}

/* y = max(0, the largest of every 2 × 2 pixels); from: which of the four that is, or 4 where all are rectified. Of equals
   the first counts, and NaN more than any number. An odd row or column at the end is dropped. */
TARGET void OWN(nestegg_pool)(const float *x, int64_t samples, int64_t height, int64_t width, int64_t channels, float *y,
                              int8_t *from) {
    for (int64_t i = 0; i < samples; i++, x += height * width * channels)
        for (int64_t r = 0; r + 1 < height; r += 2)
            for (int64_t s = 0; s + 1 < width; s += 2)
                for (int64_t c = 0; c < channels; c += LANES, y += LANES, from += LANES) {
                    const float *first = x + (r * width + s) * channels + c;
                    vector most = *(const vector *)first;
                    integers place = {0};
                    for (int k = 1; k < 4; k++) {
                        const vector one = *(const vector *)(first + (k / 2 * width + k % 2) * channels);
                        const integers more = (one > most) | (one != one);
                        most = (vector)((more & (integers)one) | (~more & (integers)most));
                        place = (more & k) | (~more & place);
                    }
                    const integers none = most <= 0.0f;
                    *(vector *)y = at_least_zero(most);
                    *(bytes *)from = __builtin_convertvector((none & 4) | (~none & place), bytes);
                }
}

/* The derivative of `nestegg_pool`: dx, every pixel of it. */
TARGET void OWN(nestegg_pool_back)(const float *dy, const int8_t *from, int64_t samples, int64_t height, int64_t width,
                                   int64_t channels, float *dx) {
    for (int64_t i = 0; i < samples; i++, dx += height * width * channels) {
        if (height % 2 || width % 2) memset(dx, 0, (size_t)(height * width * channels) * sizeof(float));
        for (int64_t r = 0; r + 1 < height; r += 2)
            for (int64_t s = 0; s + 1 < width; s += 2)
                for (int64_t c = 0; c < channels; c += LANES, dy += LANES, from += LANES) {
                    const integers place = __builtin_convertvector(*(const bytes *)from, integers);
                    float *first = dx + (r * width + s) * channels + c;
                    for (int k = 0; k < 4; k++)
                        *(vector *)(first + (k / 2 * width + k % 2) * channels) =
                            where_not(place != k, *(const vector *)dy);
                }
    }
}
