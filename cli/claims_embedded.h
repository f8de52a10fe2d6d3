/* claims_embedded.h - docs/studies/claims.toml as JSON, made by claims_json.py. */
#ifndef KVF_CLI_CLAIMS_EMBEDDED_H
#define KVF_CLI_CLAIMS_EMBEDDED_H

#include <stddef.h>

extern const unsigned char claims_embedded[];
extern const size_t claims_embedded_size;

#endif
