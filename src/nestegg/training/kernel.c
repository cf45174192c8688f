/* Local training of many small dense networks, the sum of clipped updates, and parts of convolutional networks, for the
   instruction sets of a processor; and the orders in which clients take their samples.

   kernel.h holds the first two, layers.h and winograd.h the third, written for vectors of LANES numbers. They are included
   once for each instruction set, in the width of its registers and with tiles of MOST_ROWS by 2 vectors, for which there
   are enough of them. Every element of a product is the same sum in the same order in any width. Where a set multiplies and
   adds with one rounding, MULTIPLY_ADD does; the compiler may do so nowhere else (-ffp-contract=off). So all sets agree to
   the bit, except `baseline`, which rounds twice. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "points.h"

#define FEW 16   /* columns; a multiple of all LANES */
#define AHEAD 64 /* numbers of a row that are asked for at once; the caches have few places for what is on its way */
#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (integers){__VA_ARGS__})
#endif

#if defined(__x86_64__)
#include <immintrin.h>
#define OWN(name) name##_avx512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define LANES 16
#define LOWER 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define UPPER 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define MOST_ROWS 8
#define MULTIPLY_ADD(a, b, c) _mm512_fmadd_ps(a, b, c)
#include "kernel.h"
#define OWN(name) name##_avx2
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#define LOWER 0, 8, 1, 9, 2, 10, 3, 11
#define UPPER 4, 12, 5, 13, 6, 14, 7, 15
#define MOST_ROWS 6
#define MULTIPLY_ADD(a, b, c) _mm256_fmadd_ps(a, b, c)
#include "kernel.h"
#endif

#if defined(__aarch64__)
#include <arm_neon.h>
#define OWN(name) name##_neon
#define TARGET
#define LANES 4
#define LOWER 0, 4, 1, 5
#define UPPER 2, 6, 3, 7
#define MOST_ROWS 8
#define MULTIPLY_ADD(a, b, c) vfmaq_f32(c, a, b)
#include "kernel.h"
#else
#define OWN(name) name##_baseline
#define TARGET
#define LANES 4
#define LOWER 0, 4, 1, 5
#define UPPER 2, 6, 3, 7
#define MOST_ROWS 4
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#include "kernel.h"
#endif

/* The output of SplitMix64 (Steele, Lea and Flood 2014) for one of its states. */
static inline uint64_t mixed(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Numbers of samples in the order of their draws: cast into as many bins as there are samples, or a few more, by their
   first bits, and then, as nearly all are in place, sorted by insertion. */
static void sort(const uint64_t *draws, int64_t n, int64_t start, uint64_t *sorted, int64_t *bins, int64_t *order) {
    int bits = 1;
    while ((int64_t)1 << bits < n) bits++;
    memset(bins, 0, ((size_t)1 << bits) * sizeof(int64_t));
    for (int64_t i = 0; i < n; i++) bins[draws[i] >> (64 - bits)]++;
    for (int64_t bin = 0, before = 0, count; bin < (int64_t)1 << bits; bin++, before += count)
        count = bins[bin], bins[bin] = before;
    for (int64_t i = 0; i < n; i++) {
        const int64_t place = bins[draws[i] >> (64 - bits)]++;
        sorted[place] = draws[i], order[place] = start + i;
    }
    for (int64_t i = 1; i < n; i++) {
        const uint64_t draw = sorted[i];
        const int64_t sample = order[i];
        int64_t place = i;
        for (; place > 0 && sorted[place - 1] > draw; place--)
            sorted[place] = sorted[place - 1], order[place] = order[place - 1];
        sorted[place] = draw, order[place] = sample;
    }
}

/* The order in which every client takes its samples in each epoch, one after the other: what `Randomness.orders` gives,
   counted from the client's first sample. Returns 0, or 1 if there is not enough memory. */
int nestegg_orders(uint64_t key, const int64_t *clients, const int64_t *sizes, const int64_t *starts, int64_t count,
                   int64_t epochs, int64_t *order) {
    const uint64_t golden = 0x9E3779B97F4A7C15u;
    int64_t most = 1;
    for (int64_t c = 0; c < count; c++) most = sizes[c] > most ? sizes[c] : most;
    uint64_t *draws = malloc((size_t)(4 * most + 2) * sizeof(uint64_t)); /* and sorted ones, and at most 2 * most bins */
    for (int64_t c = 0; draws && c < count; c++)
        for (int64_t epoch = 1; epoch <= epochs; epoch++, order += sizes[c]) {
            const uint64_t state = mixed(mixed(key + ((uint64_t)clients[c] + 1) * golden) + (uint64_t)epoch * golden);
            for (int64_t i = 0; i < sizes[c]; i++) draws[i] = mixed(state + (uint64_t)(i + 1) * golden);
            sort(draws, sizes[c], starts[c], draws + most, (int64_t *)(draws + 2 * most), order);
        }
    const int failed = !draws;
    free(draws);
    return failed;
}

/* Counted up whenever arguments change: a library from before is then not used. */
int nestegg_interface(void) { return 6; }

/* The instruction sets that this processor has, the widest first; 0 after the last. */
const char *nestegg_instruction_set(int64_t number) {
    const char *sets[4] = {0};
    int count = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        sets[count++] = "avx512";
    if (avx2) sets[count++] = "avx2";
#endif
#if defined(__aarch64__)
    sets[count++] = "neon";
#else
    sets[count++] = "baseline";
#endif
    return number >= 0 && number < count ? sets[number] : 0;
}
