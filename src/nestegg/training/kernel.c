/* Local training of many small dense networks (ClientUpdate, lines 1 to 8), client after client, in one call.

   A layer is one matrix of (inputs + 1) rows, the last of them its bias, and as many columns as it has outputs, padded
   with zeros to whole vectors. What goes into a layer ends in a 1. All matrices lie row by row. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16
#define MOST_ROWS 8
#define INLINE static inline __attribute__((always_inline))
#if defined(__x86_64__) && defined(__gnu_linux__)
#define FOR_EVERY_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EVERY_PROCESSOR
#endif

typedef float vector __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

static int64_t padded(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

/* Rows, and vectors of columns, of c = beta * c + a * b; an element of a is a[i * step_i + p * step_p]. */
INLINE void tile(const int rows, const int vectors, int64_t k, const float *a, int64_t step_i, int64_t step_p,
                 const float *b, int64_t ldb, float *c, int64_t ldc, float beta) {
    vector sum[MOST_ROWS][2];
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
    for (int64_t j = 0; j < n; j += 2 * LANES)
        for (int64_t i = 0, rows; i < m; i += rows) {
            const float *from = a + i * step_i;
            float *to = c + i * ldc + j;
            rows = m - i >= 8 ? 8 : m - i >= 4 ? 4 : m - i >= 2 ? 2 : 1;
            /* The compiler unrolls a tile whose size it knows. */
            switch (j + LANES < n ? rows : -rows) {
            case 8: tile(8, 2, k, from, step_i, step_p, b + j, ldb, to, ldc, beta); break;
            case 4: tile(4, 2, k, from, step_i, step_p, b + j, ldb, to, ldc, beta); break;
            case 2: tile(2, 2, k, from, step_i, step_p, b + j, ldb, to, ldc, beta); break;
            case 1: tile(1, 2, k, from, step_i, step_p, b + j, ldb, to, ldc, beta); break;
            case -8: tile(8, 1, k, from, step_i, step_p, b + j, ldb, to, ldc, beta); break;
            case -4: tile(4, 1, k, from, step_i, step_p, b + j, ldb, to, ldc, beta); break;
            case -2: tile(2, 1, k, from, step_i, step_p, b + j, ldb, to, ldc, beta); break;
            default: tile(1, 1, k, from, step_i, step_p, b + j, ldb, to, ldc, beta);
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

INLINE int64_t unpack(const float *model, const int64_t *units, int64_t layers, float *const *weights, float *update) {
    int64_t parameters = 0;
    for (int64_t l = 0; l < layers; l++) {
        const int64_t in = units[l], out = units[l + 1];
        for (int64_t j = 0; j < out; j++)
            for (int64_t p = 0; p <= in; p++) {
                const int64_t at = p < in ? j * in + p : in * out + j;
                update[at] = weights[l][p * padded(out) + j] - model[at];
            }
        model += (in + 1) * out;
        update += (in + 1) * out;
        parameters += (in + 1) * out;
    }
    return parameters;
}

/* Networks in training: for every layer its weights and velocity, what goes into it, and the derivative of the loss by
   its outputs. */
typedef struct {
    int64_t layers, width;
    const int64_t *units;
    float **weights, **velocity, **inputs, **delta;
    float *turned; /* a layer's weights, transposed */
} network;

INLINE int64_t row_of(const network *net, int64_t layer) { /* from one row of a layer's inputs to the next */
    return layer ? padded(net->units[layer]) + LANES : net->width;
}

INLINE void forward(const network *net, int64_t rows) {
    for (int64_t l = 0; l < net->layers; l++) {
        const int64_t n = padded(net->units[l + 1]);
        const float *inputs = net->inputs[l];
        multiply(rows, n, net->units[l] + 1, inputs, row_of(net, l), 1, net->weights[l], n, net->delta[l], n, 0.0f);
        for (int64_t i = 0; l + 1 < net->layers && i < rows; i++) {
            float *hidden = net->inputs[l + 1] + i * row_of(net, l + 1);
            for (int64_t j = 0; j < n; j++) {
                const float z = net->delta[l][i * n + j];
                hidden[j] = z < 0.0f ? 0.0f : z;
            }
            hidden[net->units[l + 1]] = 1.0f;
        }
    }
}

/* Derivatives layer by layer, from the last one down, and a step of SGD with momentum. */
INLINE void backward(const network *net, int64_t rows, float rate, float momentum) {
    for (int64_t l = net->layers - 1; l >= 0; l--) {
        const int64_t n = padded(net->units[l + 1]), in = padded(net->units[l]), row = row_of(net, l);
        float *weights = net->weights[l], *velocity = net->velocity[l];
        if (l) {
            float *below = net->delta[l - 1];
            for (int64_t j = 0; j < net->units[l + 1]; j++)
                for (int64_t p = 0; p < in; p++)
                    net->turned[j * in + p] = p < net->units[l] ? weights[p * n + j] : 0.0f;
            multiply(rows, in, net->units[l + 1], net->delta[l], n, 1, net->turned, in, below, in, 0.0f);
            for (int64_t i = 0; i < rows; i++)
                for (int64_t p = 0; p < in; p++)
                    if (!(net->inputs[l][i * row + p] > 0.0f)) below[i * in + p] = 0.0f;
        }
        multiply(net->units[l] + 1, n, rows, net->inputs[l], 1, row, net->delta[l], n, velocity, n, momentum);
        for (int64_t p = 0; p < (net->units[l] + 1) * n; p++) weights[p] -= rate * velocity[p];
    }
}

/* Memory for a network of the given units, in one piece that the caller frees with the table; 0 if there is none. */
static float *allocate(network *net, float **table, int64_t batch) {
    const int64_t layers = net->layers;
    int64_t numbers = batch * net->width;
    for (int64_t l = 0; l < layers; l++) {
        const int64_t n = padded(net->units[l + 1]);
        numbers += 2 * (net->units[l] + 1) * n + batch * n + batch * (n + LANES) + padded(net->units[l]) * n;
    }
    float *memory = malloc((size_t)numbers * sizeof(float)), *next = memory;
    if (!memory) return 0;
    net->weights = table, net->velocity = table + layers, net->delta = table + 2 * layers;
    net->inputs = table + 3 * layers;
    net->inputs[0] = next, next += batch * net->width;
    for (int64_t l = 0; l < layers; l++) {
        const int64_t n = padded(net->units[l + 1]);
        net->weights[l] = next, next += (net->units[l] + 1) * n;
        net->velocity[l] = next, next += (net->units[l] + 1) * n;
        net->delta[l] = next, next += batch * n;
        net->inputs[l + 1] = next, next += batch * (n + LANES);
    }
    net->turned = next;
    return memory;
}

/* Counted up whenever the arguments below change: a library from before is then not used. */
int nestegg_interface(void) { return 2; }

/* Train clients from the same model by SGD with momentum, each on its samples in its own order, epoch by epoch.

   samples: rows of `width` numbers: inputs, a 1, what is expected. order: of every client and epoch, rows of samples.
   sizes: samples of every client. units: of every layer, inputs first. updates: (clients, parameters).
   Returns 0, or 1 if there is not enough memory. */
FOR_EVERY_PROCESSOR
int nestegg_train(const float *samples, int64_t width, const int64_t *order, const int64_t *sizes, int64_t clients,
                  int64_t epochs, int64_t batch, int64_t layers, const int64_t *units, const float *model,
                  float *updates, float rate, float momentum) {
    network net = {.layers = layers, .width = width, .units = units};
    float **table = malloc((size_t)(4 * layers + 1) * sizeof(float *));
    float *memory = table ? allocate(&net, table, batch) : 0;
    for (int64_t client = 0; memory && client < clients; client++) {
        pack(model, units, layers, net.weights);
        for (int64_t l = 0; l < layers; l++)
            memset(net.velocity[l], 0, (size_t)((units[l] + 1) * padded(units[l + 1])) * sizeof(float));
        for (int64_t epoch = 0; epoch < epochs; epoch++, order += sizes[client])
            for (int64_t start = 0; start < sizes[client]; start += batch) {
                const int64_t rows = sizes[client] - start < batch ? sizes[client] - start : batch;
                for (int64_t i = 0; i < rows; i++) {
                    const float *sample = samples + order[start + i] * width;
                    memcpy(net.inputs[0] + i * width, sample, (size_t)width * sizeof(float));
                }
                forward(&net, rows);
                differentiate(net.delta[layers - 1], rows, units[layers], net.inputs[0] + units[0] + 1, width);
                backward(&net, rows, rate, momentum);
            }
        updates += unpack(model, units, layers, net.weights, updates);
    }
    const int failed = !memory;
    free(memory);
    free(table);
    return failed;
}

/* Sum of squares in double precision, in which squares of single precision are exact and cannot overflow. The order of the
   sum depends on the number of elements alone. */
INLINE double squares_of(const float *x, int64_t n) {
    double lane[8] = {0.0};
    for (int64_t i = 0; i < n; i += 8)
        for (int64_t j = 0; j < (n - i < 8 ? n - i : 8); j++) lane[j] += (double)x[i + j] * x[i + j];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/* Add clients' updates, clipped, to a total: each piece of a row to norm * below / sqrt(pieces) at most.

   edges: pieces + 1 offsets into a row. step: what is added is truncated towards zero to whole multiples of it, and
   counted in them; 0 adds the numbers as they are. lengths: of the rows as they were; a row whose length is not finite
   adds nothing. Every row is treated on its own, in an order of operations that no instruction set changes. */
FOR_EVERY_PROCESSOR __attribute__((optimize("fp-contract=off")))
void nestegg_add_clipped(const float *updates, int64_t clients, int64_t size, const int64_t *edges, int64_t pieces,
                         const double *norms, double below, double step, double *total, double *lengths) {
    for (int64_t client = 0; client < clients; client++, updates += size) {
        double squares[pieces], sum = 0.0;
        for (int64_t p = 0; p < pieces; p++)
            sum += squares[p] = squares_of(updates + edges[p], edges[p + 1] - edges[p]);
        lengths[client] = sqrt(sum);
        const double limit = norms[client] * below / sqrt((double)pieces);
        for (int64_t p = 0; p < pieces && isfinite(lengths[client]); p++) {
            const double length = sqrt(squares[p]), scale = length > limit ? limit / length : 1.0;
            if (step > 0.0)
                for (int64_t j = edges[p]; j < edges[p + 1]; j++) total[j] += trunc((double)updates[j] * (scale / step));
            else
                for (int64_t j = edges[p]; j < edges[p + 1]; j++) total[j] += (double)updates[j] * scale;
        }
    }
}
