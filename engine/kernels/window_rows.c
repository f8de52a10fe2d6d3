/* window_rows.c - the reference of window_rows.h. */
#include "engine/kernels/kernels_ref.h"

#define WINDOW(name) name##_ref
#include "engine/kernels/window_rows.h"
