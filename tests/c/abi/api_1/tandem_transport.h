/** @file
 * How the ranks of a program exchange bytes, as functions of the program. In C and C++.
 * tandem_mpi_transport.h implements them over MPI; tandem::comm::from_transport() makes a process
 * group of them. */
#ifndef TANDEM_TRANSPORT_H
#define TANDEM_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Which threads may call the functions of a transport. */
enum {
  TANDEM_CALLING_THREAD = 0, /**< those that call Tandem, during their calls */
  TANDEM_ONE_THREAD = 1,     /**< the same: the program may be calling the functions itself */
  TANDEM_ANY_THREAD = 2      /**< any, several at once: work advances while the program computes */
};

/** The functions, for one group of ranks. All but `split` return without waiting for another rank.
 * Those of type int32_t return 0 for success, else a code that `text` explains. */
typedef struct tandem_transport {
  size_t size;         /**< of this structure; later versions append members */
  void* context;       /**< the first argument of the functions */
  int32_t rank, ranks; /**< this rank, and the number of ranks */
  int32_t threads;     /**< TANDEM_CALLING_THREAD, TANDEM_ONE_THREAD or TANDEM_ANY_THREAD */
  int32_t longest;     /**< the most bytes of a message; 0: 2^30 */
  /** Starts to send `count` bytes, which stay valid until the request is done. Messages from one
   * rank to another with one tag arrive in this order. Tags are 0 to 2^15 - 1. */
  int32_t (*send)(void* context, const void* bytes, int64_t count, int32_t to, int32_t tag,
                  void** request);
  /** Starts to receive a message of at most `count` bytes. */
  int32_t (*receive)(void* context, void* bytes, int64_t count, int32_t from, int32_t tag,
                     void** request);
  /** Sets `done` to whether the request is done, and frees it if so. */
  int32_t (*test)(void* context, void** request, int32_t* done);
  /** Ends and frees a request to receive. Returns 0 if its memory is not written any more. */
  int32_t (*cancel)(void* context, void** request);
  int32_t (*alive)(void* context); /**< 0 once nothing can be sent (after MPI_Finalize) */
  void (*release)(void* context);  /**< frees the context; the last call */
  /** A transport of `count` of the ranks, in this order. Those ranks call it at about the same time
   * with one tag, and it may wait for them. */
  int32_t (*split)(void* context, const int32_t* ranks, int32_t count, int32_t tag,
                   struct tandem_transport* part);
  /** May be null. Asks for a call of `ended(data)` just before nothing can be sent any more. */
  int32_t (*on_end)(void* context, void (*ended)(void* data), void* data);
  /** May be null. Writes what a code means, null-terminated, to `size` bytes. */
  void (*text)(void* context, int32_t code, char* text, size_t size);
} tandem_transport;

#ifdef __cplusplus
}
#endif

#endif
