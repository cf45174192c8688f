/* What `winograd.h` is about: the points, as matrices, and images cut into tiles. It is the same in every instruction set. */

#define TILE 4   /* outputs a side */
#define BLOCK 32 /* tiles at a time: what belongs to them stays in the second cache */
#define EDGE 16  /* numbers between matrices, by which they do not fall on the same lines of the first cache */

/* V holds the powers 1, p, p², … of every point p, row by row: 0, pairs ±p, and infinity, which has the last power alone.
   OUTPUTS and KERNEL are its first columns; PIXELS is its inverse, transposed. Rows of KERNEL are divided by 3, 9 or 45, and
   those of PIXELS multiplied by as much, which makes them exact. Along one side, element by element in the middle,

       outputs = OUTPUTSᵀ ((KERNEL kernel) · (PIXELS pixels)).

   The second row of a pair differs from the first in the signs of odd columns. */
static const float PIXELS_6[] = {
    1, 0, -1.25f, 0, .25f, 0,
    0, 2, 2, -.5f, -.5f, 0,
    0, -2, 2, .5f, -.5f, 0,
    0, -.25f, -.125f, .25f, .125f, 0,
    0, .25f, -.125f, -.25f, .125f, 0,
    0, 4, 0, -5, 0, 1,
};
static const float PIXELS_8[] = {
    1, 0, -5.25f, 0, 5.25f, 0, -1, 0,
    0, -2, -2, 8.5f, 8.5f, -2, -2, 0,
    0, 2, -2, -8.5f, 8.5f, 2, -2, 0,
    0, .25f, .125f, -1.25f, -.625f, 1, .5f, 0,
    0, -.25f, .125f, 1.25f, -.625f, -1, .5f, 0,
    0, 64, 128, -80, -160, 16, 32, 0,
    0, -64, 128, 80, -160, -16, 32, 0,
    0, -1, 0, 5.25f, 0, -5.25f, 0, 1,
};
static const float KERNEL_6[] = {
    1, 0, 0,
    1 / 3.f, 1 / 3.f, 1 / 3.f,
    1 / 3.f, -1 / 3.f, 1 / 3.f,
    1 / 3.f, 2 / 3.f, 4 / 3.f,
    1 / 3.f, -2 / 3.f, 4 / 3.f,
    0, 0, 1,
};
static const float KERNEL_8[] = {
    1, 0, 0, 0, 0,
    1 / 9.f, 1 / 9.f, 1 / 9.f, 1 / 9.f, 1 / 9.f,
    1 / 9.f, -1 / 9.f, 1 / 9.f, -1 / 9.f, 1 / 9.f,
    1 / 45.f, 2 / 45.f, 4 / 45.f, 8 / 45.f, 16 / 45.f,
    1 / 45.f, -2 / 45.f, 4 / 45.f, -8 / 45.f, 16 / 45.f,
    1 / 45.f, 1 / 90.f, 1 / 180.f, 1 / 360.f, 1 / 720.f,
    1 / 45.f, -1 / 90.f, 1 / 180.f, -1 / 360.f, 1 / 720.f,
    0, 0, 0, 0, 1,
};
static const float OUTPUTS_6[] = {
    1, 0, 0, 0,
    1, 1, 1, 1,
    1, -1, 1, -1,
    1, 2, 4, 8,
    1, -2, 4, -8,
    0, 0, 0, 1,
};
static const float OUTPUTS_8[] = {
    1, 0, 0, 0,
    1, 1, 1, 1,
    1, -1, 1, -1,
    1, 2, 4, 8,
    1, -2, 4, -8,
    1, .5f, .25f, .125f,
    1, -.5f, .25f, -.125f,
    0, 0, 0, 1,
};
#define UNROLL _Pragma("GCC unroll 8")

/* Images, and the tiles that they are cut into. */
typedef struct {
    int64_t samples, height, width, across, tiles;
} pictures;

/* One tile: its sample, and where its first output is. */
typedef struct {
    int64_t sample, row, column;
} spot;

static inline pictures cut(int64_t samples, int64_t height, int64_t width) {
    const int64_t across = (width + TILE - 1) / TILE, down = (height + TILE - 1) / TILE;
    return (pictures){samples, height, width, across, samples * across * down};
}

static inline spot spot_of(const pictures *of, int64_t tile) {
    const int64_t each = of->tiles / of->samples, rest = tile % each;
    return (spot){tile / each, rest / of->across * TILE, rest % of->across * TILE};
}

/* A name of `winograd.h`, for its instruction set and POINTS; and a matrix, for POINTS. */
#define SIZED(name) OWN_SIZED(name, POINTS)
#define OWN_SIZED(name, points) OWN_JOINED(name, points)
#define OWN_JOINED(name, points) OWN(name##_##points)
#define MATRIX(name) MATRIX_SIZED(name, POINTS)
#define MATRIX_SIZED(name, points) JOINED(name, points)
#define JOINED(name, points) name##_##points
#define SIDE (POINTS - TILE + 1) /* of the kernel */
#define PAIRS (POINTS * POINTS)
#define FRAME(side) (((side) + TILE - 1) / TILE * TILE + SIDE - 1) /* pixels that squares of an image reach, a side */
