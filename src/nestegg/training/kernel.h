/* ClientUpdate, lines 1 to 8, for dense networks, client after client in one call; and the sum of clipped updates.

   A layer is one matrix of (inputs + 1) rows, the last of them its bias, and as many columns as it has outputs, padded
   with zeros to whole vectors. What goes into a layer ends in a 1. All matrices lie row by row. */

#define INLINE TARGET static inline __attribute__((always_inline))
#define OUTLINE TARGET static __attribute__((noinline))
#define vector OWN(vector)
#define integers OWN(integers)
#define padded OWN(padded)
#define product OWN(product)
#define tile OWN(tile)
#define tile_of OWN(tile_of)
#define multiply OWN(multiply)
#define multiply_each OWN(multiply_each)
#define exponential OWN(exponential)
#define hyperbolic_tangent OWN(hyperbolic_tangent)
#define shift OWN(shift)
#define differentiate OWN(differentiate)
#define differentiate_one OWN(differentiate_one)
#define pack OWN(pack)
#define unpack OWN(unpack)
#define network OWN(network)
#define rows_of OWN(rows_of)
#define forward OWN(forward)
#define turn OWN(turn)
#define backward OWN(backward)
#define allocate OWN(allocate)
#define squares_of OWN(squares_of)

typedef float vector __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
typedef int32_t integers __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

INLINE int64_t padded(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

/* out = a b, with m rows and n columns, n a multiple of LANES; a is given by its rows, which may lie anywhere.
   What adds is out = momentum * out + aᵀ b, and then, where there are weights, weights -= rate * out. */
typedef struct {
    int64_t m, n, k, adds, from; /* from: the first row of out that is wanted */
    const float *const *a, *b, *const *next; /* next: rows that are wanted soon, as many as a's; 0 for none */
    float *out, *weights;
    float momentum, rate;
} product;

INLINE void tile(const int adds, const int rows, const int vectors, const product *of, int64_t i0, int64_t j0) {
    const float *b = of->b + j0, *a[MOST_ROWS];
    vector sum[MOST_ROWS][2];
    for (int i = 0; i < rows; i++) {
        a[i] = adds ? 0 : of->a[i0 + i];
        for (int j = 0; j < vectors; j++) sum[i][j] = (vector){0};
    }
    for (int64_t end, start = 0; start < of->k; start = end) {
        end = adds || of->k - start < AHEAD ? of->k : start + AHEAD;
        for (int i = 0; !adds && of->next && !j0 && i < rows; i++)
            for (int64_t p = start; p < end; p += 16) __builtin_prefetch(of->next[i0 + i] + p);
        for (int64_t p = start; p < end; p++) {
            const float *column = adds ? of->a[p] + i0 : 0;
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < vectors; j++) {
                    const vector left = (adds ? column[i] : a[i][p]) - (vector){0};
                    sum[i][j] = MULTIPLY_ADD(left, *(const vector *)(b + p * of->n + j * LANES), sum[i][j]);
                }
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++) {
            const int64_t at = (i0 + i) * of->n + j0 + j * LANES;
            vector *out = (vector *)(of->out + at), *weights = (vector *)(of->weights + at);
            if (adds) {
                *out = MULTIPLY_ADD(of->momentum - (vector){0}, *out, sum[i][j]);
                if (of->weights) *weights = MULTIPLY_ADD(-of->rate - (vector){0}, *out, *weights);
            } else {
                *out = sum[i][j];
            }
        }
}

/* A tile of given rows: the compiler unrolls one whose size it knows. */
INLINE void tile_of(const int adds, int64_t rows, const product *of, int64_t i, int64_t j) {
    switch (j + LANES < of->n ? rows : -rows) {
    case 1: tile(adds, 1, 2, of, i, j); break;
    case 2: tile(adds, 2, 2, of, i, j); break;
    case 3: tile(adds, 3, 2, of, i, j); break;
    case 4: tile(adds, 4, 2, of, i, j); break;
    case -1: tile(adds, 1, 1, of, i, j); break;
    case -2: tile(adds, 2, 1, of, i, j); break;
    case -3: tile(adds, 3, 1, of, i, j); break;
    case -4: tile(adds, 4, 1, of, i, j); break;
#if MOST_ROWS > 4
    case 5: tile(adds, 5, 2, of, i, j); break;
    case 6: tile(adds, 6, 2, of, i, j); break;
    case -5: tile(adds, 5, 1, of, i, j); break;
    case -6: tile(adds, 6, 1, of, i, j); break;
#endif
#if MOST_ROWS > 6
    case 7: tile(adds, 7, 2, of, i, j); break;
    case 8: tile(adds, 8, 2, of, i, j); break;
    case -7: tile(adds, 7, 1, of, i, j); break;
    case -8: tile(adds, 8, 1, of, i, j); break;
#endif
    }
}

/* Weights are stepped through row by row, as they lie in memory; otherwise a few columns of b, which then stay in the
   first cache, meet all rows of a. */
INLINE void multiply(const product of) {
    if (of.adds) {
        for (int64_t i = of.from; i < of.m; i += MOST_ROWS)
            for (int64_t j = 0; j < of.n; j += 2 * LANES)
                tile_of(1, of.m - i < MOST_ROWS ? of.m - i : MOST_ROWS, &of, i, j);
    } else {
        for (int64_t j = 0; j < of.n; j += 2 * LANES)
            for (int64_t i = 0; i < of.m; i += MOST_ROWS)
                tile_of(0, of.m - i < MOST_ROWS ? of.m - i : MOST_ROWS, &of, i, j);
    }
}

/* As many products of the same size: a's rows follow one another BLOCK by BLOCK, the others lie so far apart. */
OUTLINE void multiply_each(product of, int64_t count, int64_t b_apart, int64_t out_apart) {
    for (int64_t i = 0; i < count; i++, of.a += BLOCK, of.b += b_apart, of.out += out_apart) multiply(of);
}

/* exp(x) - base for a base of 0 or 1, x within the range of single precision: 2^n (1 + p(r)) - base with r = x - n log 2,
   |r| <= log(2)/2, where the first eight terms of the series are enough. That the kernel has its own makes it fast, and
   the same with every C library. */
INLINE vector exponential(vector x, float base) {
    const vector none = {0}, low = none - 87.0f, high = none + 88.0f, magic = none + 12582912.0f; /* 1.5 * 2^23 */
    integers below = x < low, above = x > high;
    x = (vector)((below & (integers)low) | (~below & (integers)x)); /* NaN stays */
    x = (vector)((above & (integers)high) | (~above & (integers)x));
    const vector shifted = MULTIPLY_ADD(x, none + 1.44269504f, magic), n = shifted - magic;
    vector r = MULTIPLY_ADD(n, none - 0.693359375f, x), q = none + 1.0f / 5040;
    r = MULTIPLY_ADD(n, none + 2.12194440e-4f, r);
    q = MULTIPLY_ADD(q, r, none + 1.0f / 720);
    q = MULTIPLY_ADD(q, r, none + 1.0f / 120);
    q = MULTIPLY_ADD(q, r, none + 1.0f / 24);
    q = MULTIPLY_ADD(q, r, none + 1.0f / 6);
    q = MULTIPLY_ADD(q, r, none + 0.5f);
    const vector power = (vector)(((integers)shifted << 23) + (127 << 23)), p = MULTIPLY_ADD(r * r, q, r);
    return MULTIPLY_ADD(power, p, power - base);
}

INLINE vector hyperbolic_tangent(vector x) {
    const integers sign = (integers)x & INT32_MIN;
    const vector e = exponential(-2.0f * (vector)((integers)x ^ sign), 1.0f);
    return (vector)((integers)(-e / (e + 2.0f)) | sign);
}

INLINE void shift(float *outputs, int64_t batch, int64_t n, const float *by) {
    for (int64_t i = 0; i < batch; i++)
        for (int64_t j = 0; j < n; j++) outputs[i * padded(n) + j] += by[j];
}

/* Derivative of the mean loss by the outputs, in their place: probabilities less what is expected, over the batch. */
INLINE void differentiate(float *outputs, int64_t batch, int64_t n, const float *const *samples, int64_t expected) {
    for (int64_t i = 0; i < batch; i++) {
        float *out = outputs + i * padded(n), most = out[0], sum = 0.0f;
        for (int64_t j = 1; j < n; j++) most = out[j] > most ? out[j] : most;
        for (int64_t j = 0; j < n; j += LANES) *(vector *)(out + j) = exponential(*(vector *)(out + j) - most, 0.0f);
        for (int64_t j = 0; j < n; j++) sum += out[j];
        for (int64_t j = 0; j < n; j++) out[j] = (out[j] / sum - samples[i][expected + j]) / (float)batch;
        for (int64_t j = n; j < padded(n); j++) out[j] = 0.0f;
    }
}

#include "few.h"

/* The same for one output, of as many samples at a time as there are lanes. */
INLINE void differentiate_one(float *outputs, int64_t batch, const float *const *samples, int64_t expected) {
    for (int64_t i = 0; i < batch; i += LANES) {
        const int64_t lanes = batch - i < LANES ? batch - i : LANES;
        float z[LANES] = {0.0f}, *out = outputs + i * LANES;
        for (int64_t j = 0; j < lanes; j++) z[j] = out[j * LANES];
        *(vector *)z = 1.0f / (1.0f + exponential(-*(vector *)z, 0.0f));
        for (int64_t j = 0; j < lanes; j++) out[j * LANES] = (z[j] - samples[i + j][expected]) / (float)batch;
    }
}

/* Weights from and to the layout of the model: a layer's weight, (outputs, inputs), and then its bias. */
INLINE void pack(const float *model, const int64_t *units, int64_t layers, float *weights) {
    for (int64_t l = 0; l < layers; l++) {
        const int64_t in = units[l], out = units[l + 1];
        for (int64_t p = 0; p <= in; p++, weights += padded(out))
            for (int64_t j = 0; j < padded(out); j++)
                weights[j] = j >= out ? 0.0f : model[p < in ? j * in + p : in * out + j];
        model += (in + 1) * out;
    }
}

INLINE int64_t unpack(const float *model, const int64_t *units, int64_t layers, const float *weights, float *update) {
    int64_t parameters = 0;
    for (int64_t l = 0; l < layers; l++) {
        const int64_t in = units[l], out = units[l + 1];
        for (int64_t j = 0; j < out; j++)
            for (int64_t p = 0; p <= in; p++) {
                const int64_t at = p < in ? j * in + p : in * out + j;
                update[at] = weights[p * padded(out) + j] - model[at];
            }
        weights += (in + 1) * padded(out);
        model += (in + 1) * out;
        update += (in + 1) * out;
        parameters += (in + 1) * out;
    }
    return parameters;
}

/* A network in training: for every layer its weights and velocity, the rows that go into it, and the derivative of the
   loss by its outputs. All layers' weights lie in one piece, and so do all velocities. Rows of the first layer are samples
   where they lie; nothing of them is copied. */
typedef struct {
    int64_t layers, batch, tanh, numbers; /* numbers: of all weights */
    const int64_t *units;
    float *start, **weights, **velocity, **delta;
    float **inputs, **deltas; /* (layers, batch): the rows of what goes into a layer, and of its delta */
    float **next;             /* (batch,): the samples of the next batch, scattered in memory: processors do not foresee them */
    float *turned;            /* a layer's weights, transposed */
} network;

INLINE const float *const *rows_of(float **rows, const network *net, int64_t layer) {
    return (const float *const *)rows + layer * net->batch;
}

INLINE void forward(const network *net, int64_t rows) {
    for (int64_t l = 0; l < net->layers; l++) {
        const int64_t n = padded(net->units[l + 1]);
        multiply((product){.m = rows, .n = n, .k = net->units[l] + 1, .a = rows_of(net->inputs, net, l),
                           .b = net->weights[l], .out = net->delta[l], .next = l ? 0 : rows_of(net->next, net, 0)});
        for (int64_t i = 0; l + 1 < net->layers && i < rows; i++) {
            float *hidden = net->inputs[(l + 1) * net->batch + i];
            const float *z = net->delta[l] + i * n;
            for (int64_t j = 0; net->tanh && j < n; j += LANES)
                *(vector *)(hidden + j) = hyperbolic_tangent(*(const vector *)(z + j));
            for (int64_t j = 0; !net->tanh && j < n; j++) hidden[j] = z[j] < 0.0f ? 0.0f : z[j];
            hidden[net->units[l + 1]] = 1.0f;
        }
    }
}

/* The transpose of a layer's weights, bias apart, in blocks that lie in few pages of memory. */
INLINE void turn(const float *weights, int64_t inputs, int64_t outputs, float *turned) {
    const int64_t n = padded(outputs), in = padded(inputs);
    for (int64_t j0 = 0; j0 < outputs; j0 += 16)
        for (int64_t p0 = 0; p0 < in; p0 += 16) /* in and n are multiples of 4 at least */
            for (int64_t j = j0; j < j0 + 16 && j < outputs; j++)
                for (int64_t p = p0; p < p0 + 16 && p < in; p++)
                    turned[j * in + p] = p < inputs ? weights[p * n + j] : 0.0f;
}

/* Derivatives layer by layer, from the last one down, and a step of SGD with momentum. */
INLINE void backward(const network *net, int64_t rows, float rate, float momentum) {
    for (int64_t l = net->layers - 1; l >= 0; l--) {
        const int64_t n = padded(net->units[l + 1]), in = padded(net->units[l]);
        if (l) {
            float *below = net->delta[l - 1];
            turn(net->weights[l], net->units[l], net->units[l + 1], net->turned);
            multiply((product){.m = rows, .n = in, .k = net->units[l + 1], .a = rows_of(net->deltas, net, l),
                               .b = net->turned, .out = below});
            for (int64_t i = 0; i < rows; i++) {
                const float *hidden = net->inputs[l * net->batch + i];
                for (int64_t p = 0; p < in; p++) {
                    const float slope = net->tanh ? 1.0f - hidden[p] * hidden[p] : hidden[p] > 0.0f ? 1.0f : 0.0f;
                    below[i * in + p] = slope == 0.0f ? 0.0f : below[i * in + p] * slope;
                }
            }
        }
        product step = {.m = net->units[l] + 1, .n = n, .k = rows, .a = rows_of(net->inputs, net, l), .adds = 1,
                        .b = net->delta[l], .out = net->velocity[l], .weights = net->weights[l],
                        .momentum = momentum, .rate = rate};
        if (net->units[l + 1] <= FEW) step.from = thin(step, net->units[l + 1]);
        multiply(step);
    }
}

/* Memory for a network of the given units, in one piece that the caller frees with the table; 0 if there is none. */
INLINE float *allocate(network *net, float **table) {
    const int64_t layers = net->layers, batch = net->batch;
    int64_t others = 0, turned = 0;
    net->numbers = 0;
    for (int64_t l = 0; l < layers; l++) {
        const int64_t n = padded(net->units[l + 1]), in = padded(net->units[l]);
        net->numbers += (net->units[l] + 1) * n;
        others += batch * n + (l ? batch * (in + LANES) : 0);
        turned = l && in * n > turned ? in * n : turned;
    }
    const int64_t bytes = (3 * net->numbers + others + turned) * (int64_t)sizeof(float);
    float *memory = aligned_alloc(64, (size_t)((bytes + 63) / 64 * 64)), *next = memory; /* 64: a line of the cache */
    if (!memory) return 0;
    net->weights = table, net->velocity = table + layers, net->delta = table + 2 * layers;
    net->inputs = table + 3 * layers, net->deltas = net->inputs + layers * batch;
    net->next = net->deltas + layers * batch;
    net->start = next, next += net->numbers;
    for (int64_t l = 0; l < layers; l++) net->weights[l] = next, next += (net->units[l] + 1) * padded(net->units[l + 1]);
    for (int64_t l = 0; l < layers; l++) net->velocity[l] = next, next += (net->units[l] + 1) * padded(net->units[l + 1]);
    for (int64_t l = 0; l < layers; l++) {
        const int64_t n = padded(net->units[l + 1]), in = padded(net->units[l]);
        net->delta[l] = next;
        for (int64_t i = 0; i < batch; i++, next += n) net->deltas[l * batch + i] = next;
        for (int64_t i = 0; l && i < batch; i++, next += in + LANES) net->inputs[l * batch + i] = next;
    }
    net->turned = next;
    return memory;
}

/* Train clients from the same model by SGD with momentum, each on its samples in its own order, epoch by epoch.

   samples: rows of `width` numbers: inputs, a 1, what is expected. order: of every client and epoch, rows of samples.
   sizes: samples of every client. units: of every layer, inputs first. tanh: what is between layers, instead of
   rectifiers. shifts: (clients, outputs), added to a client's outputs before the loss, or 0 for none. updates: (clients,
   parameters). Returns 0, or 1 if there is not enough memory. */
TARGET int OWN(nestegg_train)(const float *samples, int64_t width, const int64_t *order, const int64_t *sizes,
                              int64_t clients, int64_t epochs, int64_t batch, int64_t layers, const int64_t *units,
                              int64_t tanh, const float *shifts, const float *model, float *updates, float rate,
                              float momentum) {
    network net = {.layers = layers, .batch = batch, .units = units, .tanh = tanh};
    float **table = malloc((size_t)((3 + 2 * batch) * layers + batch) * sizeof(float *));
    float *memory = table ? allocate(&net, table) : 0;
    const int64_t *end = order;
    for (int64_t client = 0; client < clients; client++) end += epochs * sizes[client];
    if (memory) pack(model, units, layers, net.start);
    for (int64_t client = 0; memory && client < clients; client++) {
        memcpy(net.weights[0], net.start, (size_t)net.numbers * sizeof(float));
        memset(net.velocity[0], 0, (size_t)net.numbers * sizeof(float));
        for (int64_t epoch = 0; epoch < epochs; epoch++, order += sizes[client])
            for (int64_t start = 0; start < sizes[client]; start += batch) {
                const int64_t rows = sizes[client] - start < batch ? sizes[client] - start : batch;
                for (int64_t i = 0; i < rows; i++) net.inputs[i] = (float *)samples + order[start + i] * width;
                const int64_t ahead = start + rows, left = end - order - ahead;
                for (int64_t i = 0; i < rows; i++)
                    net.next[i] = (float *)samples + (i < left ? order[ahead + i] * width : 0);
                forward(&net, rows);
                if (shifts) shift(net.delta[layers - 1], rows, units[layers], shifts + client * units[layers]);
                const float *const *batch_of = rows_of(net.inputs, &net, 0);
                if (units[layers] == 1) differentiate_one(net.delta[layers - 1], rows, batch_of, units[0] + 1);
                else if (units[layers] <= FEW)
                    differentiate_few(net.delta[layers - 1], rows, units[layers], batch_of, units[0] + 1);
                else differentiate(net.delta[layers - 1], rows, units[layers], batch_of, units[0] + 1);
                backward(&net, rows, rate, momentum);
            }
        updates += unpack(model, units, layers, net.weights[0], updates);
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
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) lane[j] += (double)x[i + j] * x[i + j];
    for (; i < n; i++) lane[i % 8] += (double)x[i] * x[i];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/* Add clients' updates, clipped, to a total: each piece of a row to norm * below / sqrt(pieces) at most.

   edges: pieces + 1 offsets into a row. step: what is added is truncated towards zero to whole multiples of it, and
   counted in them; 0 adds the numbers as they are. lengths: of the rows as they were; a row whose length is not finite
   adds nothing. Every row is treated on its own, in an order of operations that no instruction set changes. */
TARGET void OWN(nestegg_add_clipped)(const float *updates, int64_t clients, int64_t size, const int64_t *edges,
                                     int64_t pieces, const double *norms, double below, double step, double *total,
                                     double *lengths) {
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

#include "layers.h"
#define POINTS 6
#include "winograd.h"
#define POINTS 8
#include "winograd.h"

#undef OWN
#undef TARGET
#undef LANES
#undef LOWER
#undef UPPER
#undef MOST_ROWS
#undef MULTIPLY_ADD
