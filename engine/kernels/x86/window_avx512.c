/* window_avx512.c - attention rows of a window. */
#include "engine/kernels/x86/kernels_x86.h"

#define WINDOW(name) name##_avx512
#include "engine/kernels/window_rows.h"
