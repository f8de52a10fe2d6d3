/* window_avx2.c - attention rows of a window. */
#include "engine/kernels/x86/kernels_x86.h"

#define WINDOW(name) name##_avx2
#include "engine/kernels/window_rows.h"
