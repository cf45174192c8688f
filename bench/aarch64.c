/* Runs the kernel for NEON on what bench/aarch64.py writes to standard input, and writes what comes out. */

#include <stdio.h>

#include "../src/nestegg/training/kernel.c"

static void *take(int64_t count, size_t size) {
    void *memory = malloc((size_t)count * size + 1);
    if (!memory || fread(memory, size, (size_t)count, stdin) != (size_t)count) exit(2);
    return memory;
}

int main(void) {
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
