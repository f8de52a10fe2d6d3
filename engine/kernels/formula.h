/* formula.h - FORMULA_FN, the prefix of functions that C and CUDA share.  A kernel file defines it
 * as its own prefix first (engine/cuda/device.cuh). */
#pragma once

#ifndef FORMULA_FN
#define FORMULA_FN static inline
#endif
