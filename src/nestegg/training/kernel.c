/* Local training of many small dense networks, and the sum of clipped updates, for the instruction sets of a processor.

   kernel.h holds both, written for vectors of LANES numbers. It is included once for each instruction set, in the width
   of its registers and with tiles of MOST_ROWS by 2 vectors, for which there are enough of them. Every element of a product
   is the same sum in the same order in any width. Where a set multiplies and adds with one rounding, MULTIPLY_ADD does;
   the compiler may do so nowhere else (-ffp-contract=off). So all sets agree to the bit, except `baseline`, which rounds
   twice. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define OWN(name) name##_avx512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define LANES 16
#define MOST_ROWS 8
#define MULTIPLY_ADD(a, b, c) _mm512_fmadd_ps(a, b, c)
#include "kernel.h"
#define OWN(name) name##_avx2
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#define MOST_ROWS 6
#define MULTIPLY_ADD(a, b, c) _mm256_fmadd_ps(a, b, c)
#include "kernel.h"
#endif

#if defined(__aarch64__)
#include <arm_neon.h>
#define OWN(name) name##_neon
#define TARGET
#define LANES 4
#define MOST_ROWS 8
#define MULTIPLY_ADD(a, b, c) vfmaq_f32(c, a, b)
#include "kernel.h"
#else
#define OWN(name) name##_baseline
#define TARGET
#define LANES 4
#define MOST_ROWS 4
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#include "kernel.h"
#endif

/* Counted up whenever arguments change: a library from before is then not used. */
int nestegg_interface(void) { return 3; }

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
