/* window.c - attention rows of a window. */
#include "engine/kernels/x86/kernels_x86.h"
#include "engine/kernels/x86/vec.h"

#define WINDOW(name) ISA(name)
#include "engine/kernels/window_rows.h"
