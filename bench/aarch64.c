/* Runs the kernel for NEON on what bench/aarch64.py writes to standard input, and writes what comes out. */

#include <stdio.h>

#include "../src/nestegg/training/kernel.c"

static void *take(int64_t count, size_t size) {
    void *memory = malloc((size_t)count * size + 1);
    if (!memory || fread(memory, size, (size_t)count, stdin) != (size_t)count) exit(2);
    return memory;
}

static float *room(int64_t count) {
    float *memory = malloc((size_t)count * 4);
    if (!memory) exit(3);
    return memory;
}

/* A convolution, and its derivatives by inputs, kernel and bias. */
static int convolve(void) {
    const int64_t *facts = take(6, 8), samples = facts[0], height = facts[1], width = facts[2], in = facts[3], out = facts[4];
    const int64_t pixels = samples * height * width, numbers = in * out * facts[5] * facts[5];
    const float *x = take(pixels * in, 4), *kernel = take(numbers, 4), *bias = take(out, 4), *dy = take(pixels * out, 4);
    float *y = room(pixels * out), *dx = room(pixels * in), *dkernel = room(numbers), *dbias = room(out);
    const int failed =
        facts[5] == 3
            ? nestegg_convolve_6_neon(x, kernel, bias, samples, height, width, in, out, 0, y) +
                  nestegg_convolve_6_neon(dy, kernel, 0, samples, height, width, out, in, 1, dx) +
                  nestegg_convolve_back_6_neon(x, dy, samples, height, width, in, out, dkernel, dbias)
            : nestegg_convolve_8_neon(x, kernel, bias, samples, height, width, in, out, 0, y) +
                  nestegg_convolve_8_neon(dy, kernel, 0, samples, height, width, out, in, 1, dx) +
                  nestegg_convolve_back_8_neon(x, dy, samples, height, width, in, out, dkernel, dbias);
    fwrite(y, 4, (size_t)(pixels * out), stdout);
    fwrite(dx, 4, (size_t)(pixels * in), stdout);
    fwrite(dkernel, 4, (size_t)numbers, stdout);
    fwrite(dbias, 4, (size_t)out, stdout);
    return failed ? 4 : 0;
}

int main(int arguments, char **given) {
    if (arguments > 1 && !strcmp(given[1], "convolve")) return convolve();
    const int64_t *facts = take(9, 8), clients = facts[0], epochs = facts[1], layers = facts[3], pieces = facts[5];
    const int64_t rows = facts[6], width = facts[7], size = facts[8];
    const int64_t *units = take(layers + 1, 8), *numbers = take(clients, 8), *sizes = take(clients, 8);
    const int64_t *starts = take(clients, 8), *edges = take(pieces + 1, 8);
    const uint64_t *key = take(1, 8);
    const double *norms = take(clients, 8), *settings = take(4, 8);
    const float *model = take(size, 4), *samples = take(rows * width, 4);
    const float *shifts = take(clients * units[layers], 4);
    int64_t *order = malloc((size_t)(epochs * rows) * 8);
    float *updates = malloc((size_t)(clients * size) * 4);
    double *total = calloc((size_t)size, 8), *lengths = malloc((size_t)clients * 8);
    if (strcmp(nestegg_instruction_set(0), "neon") || !order || !updates || !total || !lengths) return 3;
    if (nestegg_orders(*key, numbers, sizes, starts, clients, epochs, order)) return 4;
    if (nestegg_train_neon(samples, width, order, sizes, clients, epochs, facts[2], layers, units, facts[4], shifts,
                           model, updates, (float)settings[0], (float)settings[1]))
        return 4;
    nestegg_add_clipped_neon(updates, clients, size, edges, pieces, norms, settings[2], settings[3], total, lengths);
    fwrite(order, 8, (size_t)(epochs * rows), stdout);
    fwrite(updates, 4, (size_t)(clients * size), stdout);
    fwrite(total, 8, (size_t)size, stdout);
    fwrite(lengths, 8, (size_t)clients, stdout);
    return 0;
}
