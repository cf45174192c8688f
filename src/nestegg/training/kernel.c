/* Local training of many small dense networks (ClientUpdate, lines 1 to 8), client after client, without calls in between.

   A layer is one matrix of (inputs + 1) rows, the last of them its bias, and as many columns as it has outputs, padded
   with zeros to whole vectors. What goes into a layer ends in a 1. All matrices lie row by row. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16
#define ROWS 8
#define INLINE static inline __attribute__((always_inline))
#if defined(__x86_64__) && defined(__gnu_linux__)
#define FOR_EVERY_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EVERY_PROCESSOR
#endif

typedef float vector __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

static int64_t padded(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

/* Some rows and some vectors of columns of c = beta * c + a * b, where a's element (i, p) is a[i * step_i + p * step_p]. */
INLINE void tile(const int rows, const int vectors, int64_t k, const float *a, int64_t step_i, int64_t step_p,
                 const float *b, int64_t ldb, float *c, int64_t ldc, float beta) {
    vector sum[ROWS][2];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++) sum[i][j] = (vector){0};
    for (int64_t p = 0; p < k; p++)
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < vectors; j++)
                sum[i][j] += a[i * step_i + p * step_p] * *(const vector *)(b + p * ldb + j * LANES);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++) {
            vector *out = (vector *)(c + i * ldc + j * LANES);
            *out = beta == 0.0f ? sum[i][j] : beta * *out + sum[i][j];
        }
}

/* c = beta * c + a * b; c has m rows and n columns, n a multiple of LANES. */
INLINE void multiply(int64_t m, int64_t n, int64_t k, const float *a, int64_t step_i, int64_t step_p, const float *b,
                     int64_t ldb, float *c, int64_t ldc, float beta) {
    for (int64_t j = 0; j < n; j += 2 * LANES) {
        const int two = j + LANES < n;
        int64_t i = 0;
        for (; i + ROWS <= m; i += ROWS) {
            if (two)
                tile(ROWS, 2, k, a + i * step_i, step_i, step_p, b + j, ldb, c + i * ldc + j, ldc, beta);
            else
                tile(ROWS, 1, k, a + i * step_i, step_i, step_p, b + j, ldb, c + i * ldc + j, ldc, beta);
        }
        for (; i < m; i++) {
            if (two)
                tile(1, 2, k, a + i * step_i, step_i, step_p, b + j, ldb, c + i * ldc + j, ldc, beta);
            else
                tile(1, 1, k, a + i * step_i, step_i, step_p, b + j, ldb, c + i * ldc + j, ldc, beta);
        }
    }
}

/* Derivative of the mean loss by the outputs, in their place: probabilities less what is expected, over the batch. */
INLINE void differentiate(float *outputs, int64_t batch, int64_t n, const float *expected, int64_t width) {
    for (int64_t i = 0; i < batch; i++) {
        float *out = outputs + i * padded(n), most = out[0], sum = 0.0f;
        if (n == 1) {
            out[0] = 1.0f / (1.0f + expf(-out[0]));
        } else {
            for (int64_t j = 1; j < n; j++) most = out[j] > most ? out[j] : most;
            for (int64_t j = 0; j < n; j++) sum += out[j] = expf(out[j] - most);
            for (int64_t j = 0; j < n; j++) out[j] /= sum;
        }
        for (int64_t j = 0; j < n; j++) out[j] = (out[j] - expected[i * width + j]) / (float)batch;
    }
}

/* Weights from and to the layout of the model: a layer's weight, (outputs, inputs), and then its bias. */
INLINE void pack(const float *model, const int64_t *units, int64_t layers, float *const *weights) {
    for (int64_t l = 0; l < layers; l++) {
        const int64_t in = units[l], out = units[l + 1];
        for (int64_t p = 0; p <= in; p++)
            for (int64_t j = 0; j < padded(out); j++)
                weights[l][p * padded(out) + j] = j >= out ? 0.0f : model[p < in ? j * in + p : in * out + j];
        model += (in + 1) * out;
    }
}

INLINE void unpack(const float *model, const int64_t *units, int64_t layers, float *const *weights, float *update) {
    for (int64_t l = 0; l < layers; l++) {
        const int64_t in = units[l], out = units[l + 1];
        for (int64_t j = 0; j < out; j++)
            for (int64_t p = 0; p <= in; p++) {
                const int64_t at = p < in ? j * in + p : in * out + j;
                update[at] = weights[l][p * padded(out) + j] - model[at];
            }
        model += (in + 1) * out;
        update += (in + 1) * out;
    }
}

/* Train clients from the same model by SGD with momentum, each on its samples in its own order, epoch by epoch.

   samples: rows of `width` numbers: inputs, a 1, what is expected. order: of every client and epoch, rows of samples.
   sizes: samples of every client. units: of every layer, inputs first. updates: (clients, parameters).
   Returns 0, or 1 if there is not enough memory. */
FOR_EVERY_PROCESSOR
int nestegg_train(const float *samples, int64_t width, const int64_t *order, const int64_t *sizes, int64_t clients,
                  int64_t epochs, int64_t batch, int64_t layers, const int64_t *units, const float *model,
                  float *updates, float rate, float momentum) {
    int64_t parameters = 0, numbers = batch * width;
    for (int64_t l = 0; l < layers; l++) {
        const int64_t n = padded(units[l + 1]);
        parameters += (units[l] + 1) * units[l + 1];
        numbers += 2 * (units[l] + 1) * n + batch * n + batch * (n + LANES) + padded(units[l]) * n;
    }
    float *memory = malloc((size_t)numbers * sizeof(float));
    float **table = malloc((size_t)(4 * layers + 1) * sizeof(float *));
    if (!memory || !table) {
        free(memory);
        free(table);
        return 1;
    }
    float **weights = table, **velocity = table + layers, **delta = table + 2 * layers, **inputs = table + 3 * layers;
    float *next = memory;
    inputs[0] = next, next += batch * width;
    for (int64_t l = 0; l < layers; l++) {
        const int64_t n = padded(units[l + 1]);
        weights[l] = next, next += (units[l] + 1) * n;
        velocity[l] = next, next += (units[l] + 1) * n;
        delta[l] = next, next += batch * n;
        inputs[l + 1] = next, next += batch * (n + LANES);
    }
    float *turned = next; /* a layer's weights, transposed */

    for (int64_t client = 0; client < clients; client++) {
        pack(model, units, layers, weights);
        for (int64_t l = 0; l < layers; l++)
            memset(velocity[l], 0, (size_t)((units[l] + 1) * padded(units[l + 1])) * sizeof(float));
        for (int64_t epoch = 0; epoch < epochs; epoch++, order += sizes[client])
            for (int64_t start = 0; start < sizes[client]; start += batch) {
                const int64_t rows = sizes[client] - start < batch ? sizes[client] - start : batch;
                for (int64_t i = 0; i < rows; i++)
                    memcpy(inputs[0] + i * width, samples + order[start + i] * width, (size_t)width * sizeof(float));
                for (int64_t l = 0; l < layers; l++) {
                    const int64_t n = padded(units[l + 1]), lda = l ? padded(units[l]) + LANES : width;
                    multiply(rows, n, units[l] + 1, inputs[l], lda, 1, weights[l], n, delta[l], n, 0.0f);
                    if (l + 1 < layers)
                        for (int64_t i = 0; i < rows; i++) {
                            float *hidden = inputs[l + 1] + i * (n + LANES);
                            for (int64_t j = 0; j < n; j++) {
                                const float z = delta[l][i * n + j];
                                hidden[j] = z < 0.0f ? 0.0f : z;
                            }
                            hidden[units[l + 1]] = 1.0f;
                        }
                }
                differentiate(delta[layers - 1], rows, units[layers], inputs[0] + units[0] + 1, width);
                for (int64_t l = layers - 1; l >= 0; l--) {
                    const int64_t n = padded(units[l + 1]), in = padded(units[l]), lda = l ? in + LANES : width;
                    if (l) {
                        for (int64_t j = 0; j < units[l + 1]; j++)
                            for (int64_t p = 0; p < in; p++)
                                turned[j * in + p] = p < units[l] ? weights[l][p * n + j] : 0.0f;
                        multiply(rows, in, units[l + 1], delta[l], n, 1, turned, in, delta[l - 1], in, 0.0f);
                        for (int64_t i = 0; i < rows; i++)
                            for (int64_t p = 0; p < in; p++)
                                if (!(inputs[l][i * lda + p] > 0.0f)) delta[l - 1][i * in + p] = 0.0f;
                    }
                    multiply(units[l] + 1, n, rows, inputs[l], 1, lda, delta[l], n, velocity[l], n, momentum);
                    for (int64_t p = 0; p < (units[l] + 1) * n; p++) weights[l][p] -= rate * velocity[l][p];
                }
            }
        unpack(model, units, layers, weights, updates + client * parameters);
    }
    free(memory);
    free(table);
    return 0;
}
