/* model_file.h - opens a model by the path that a user gives. */
#pragma once

#include "engine/model/gguf.h"

/* Opens a GGUF file, or a folder (hf_folder.h). Returns as gguf_open() does. */
int model_file_open(const char *path, struct gguf **ret_gguf, struct kvf_diag *d);
