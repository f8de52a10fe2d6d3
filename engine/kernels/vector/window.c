/* window.c - attention rows of a window. */
#include "engine/kernels/vector/sets.h"
#include "engine/kernels/vector/vec.h"

#define WINDOW(name) ISA(name)
#include "engine/kernels/window_rows.h"
