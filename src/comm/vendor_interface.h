/* What a vendor's communication library must have to be the one of domains:
 *
 *   WorkerOptions{.communication = "vendor:/path/libvendor_comm.so"}
 *
 * It is loaded with dlopen, once in each chip's process, and called from one thread there. The
 * shape is HCCL's and NCCL's: one rank makes root information, which the caller brings to all
 * others; then each rank joins with it. An adapter for such a library is a page of C.
 *
 * Every call may block until the other ranks make theirs. Strata bounds it: a process that sits in
 * a call when another rank has failed, or when the time is up, is ended. The library need not, and
 * should not, have time-outs of its own. docs/how-to/use-a-vendor-library.md says more.
 */
#ifndef STRATA_VENDOR_INTERFACE_H
#define STRATA_VENDOR_INTERFACE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In C, and named as a C library names things. */
/* NOLINTBEGIN(modernize-use-using,readability-identifier-naming) */

/* What strata_vendor_version() must return. */
#define STRATA_VENDOR_VERSION 1

/* Root information: `bytes` bytes of data, of any content. */
#define STRATA_VENDOR_ROOT_BYTES 4108
typedef struct strata_vendor_root {
  uint32_t bytes;
  unsigned char data[STRATA_VENDOR_ROOT_BYTES];
} strata_vendor_root;

/* One rank's place in a communicator; the library's own. */
typedef struct strata_vendor_comm strata_vendor_comm;

/* All return 0 if they went well. */
uint32_t strata_vendor_version(void);
/* On rank 0 only, before all others. */
int strata_vendor_root_info(strata_vendor_root* root);
/* On all ranks: joins them. */
int strata_vendor_init(const strata_vendor_root* root, uint32_t rank, uint32_t size,
                       strata_vendor_comm** comm);
int strata_vendor_barrier(strata_vendor_comm* comm);
/* Also of a communicator whose other ranks are gone. */
int strata_vendor_destroy(strata_vendor_comm* comm);
/* What a result of another kind than 0 means; of static lifetime. */
const char* strata_vendor_error_text(int result);

/* NOLINTEND(modernize-use-using,readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif
