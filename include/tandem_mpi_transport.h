/** @file
 * A transport over a communicator of the program. The program's compiler builds these functions
 * with its own <mpi.h>, so that Tandem works with every MPI and links none. In C and C++. */
#ifndef TANDEM_MPI_TRANSPORT_H
#define TANDEM_MPI_TRANSPORT_H

#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "tandem_transport.h"

/** The context of the transport. */
typedef struct tandem_mpi_context {
  MPI_Comm comm;        /**< a duplicate, or a part of one */
  int key;              /**< of the attribute of MPI_COMM_SELF that MPI_Finalize deletes */
  void (*ended)(void*); /**< called by MPI_Finalize; null: not asked for */
  void* data;           /**< its argument */
} tandem_mpi_context;

/** Keeps a started request. */
static inline int32_t tandem_mpi_start(int code, MPI_Request* started, void** request) {
  if (code != MPI_SUCCESS) {
    free(started);
    started = NULL;
  }
  *request = started;
  return code;
}
/** tandem_transport::send. */
static inline int32_t tandem_mpi_send(void* context, const void* bytes, int64_t count, int32_t to,
                                      int32_t tag, void** request) {
  MPI_Request* started = (MPI_Request*)malloc(sizeof(MPI_Request));
  if (!started) return MPI_ERR_NO_MEM;
  return tandem_mpi_start(MPI_Isend(bytes, (int)count, MPI_BYTE, to, tag,
                                    ((tandem_mpi_context*)context)->comm, started),
                          started, request);
}
/** tandem_transport::receive. */
static inline int32_t tandem_mpi_receive(void* context, void* bytes, int64_t count, int32_t from,
                                         int32_t tag, void** request) {
  MPI_Request* started = (MPI_Request*)malloc(sizeof(MPI_Request));
  if (!started) return MPI_ERR_NO_MEM;
  return tandem_mpi_start(MPI_Irecv(bytes, (int)count, MPI_BYTE, from, tag,
                                    ((tandem_mpi_context*)context)->comm, started),
                          started, request);
}
/** tandem_transport::test. */
static inline int32_t tandem_mpi_test(void* context, void** request, int32_t* done) {
  int finished = 0;
  const int code = MPI_Test((MPI_Request*)*request, &finished, MPI_STATUS_IGNORE);
  (void)context;
  *done = finished;
  if (finished) {
    free(*request);
    *request = NULL;
  }
  return code;
}
/** tandem_transport::cancel. */
static inline int32_t tandem_mpi_cancel(void* context, void** request) {
  int finished = 0;
  int code = MPI_Cancel((MPI_Request*)*request);
  (void)context;
  if (code == MPI_SUCCESS) code = MPI_Test((MPI_Request*)*request, &finished, MPI_STATUS_IGNORE);
  if (!finished) MPI_Request_free((MPI_Request*)*request);
  free(*request);
  *request = NULL;
  return finished ? MPI_SUCCESS : code == MPI_SUCCESS ? MPI_ERR_PENDING : code;
}
/** tandem_transport::alive. */
static inline int32_t tandem_mpi_alive(void* context) {
  int finalized = 0;
  (void)context;
  MPI_Finalized(&finalized);
  return !finalized;
}
/** Called when MPI_Finalize deletes the attributes of MPI_COMM_SELF, before anything else. */
static inline int tandem_mpi_end(MPI_Comm self, int key, void* value, void* state) {
  tandem_mpi_context* context = (tandem_mpi_context*)value;
  (void)self;
  (void)key;
  (void)state;
  if (context->ended) context->ended(context->data);
  context->ended = NULL;
  return MPI_SUCCESS;
}
/** tandem_transport::on_end. */
static inline int32_t tandem_mpi_on_end(void* context, void (*ended)(void*), void* data) {
  tandem_mpi_context* mine = (tandem_mpi_context*)context;
  int code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, tandem_mpi_end, &mine->key, NULL);
  if (code != MPI_SUCCESS) return code;
  mine->ended = ended;
  mine->data = data;
  return MPI_Comm_set_attr(MPI_COMM_SELF, mine->key, mine);
}
/** tandem_transport::release. */
static inline void tandem_mpi_release(void* context) {
  tandem_mpi_context* mine = (tandem_mpi_context*)context;
  const int watched = mine->ended != NULL;
  mine->ended = NULL;
  if (tandem_mpi_alive(context)) {
    if (watched) {
      MPI_Comm_delete_attr(MPI_COMM_SELF, mine->key);
      MPI_Comm_free_keyval(&mine->key);
    }
    MPI_Comm_free(&mine->comm);
  }
  free(context);
}
/** tandem_transport::text. */
static inline void tandem_mpi_text(void* context, int32_t code, char* text, size_t size) {
  char all[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0;
  size_t i = 0;
  (void)context;
  MPI_Error_string(code, all, &length);
  for (; i + 1 < size && all[i]; ++i) text[i] = all[i];
  text[i] = 0;
}
static inline int32_t tandem_mpi_split(void* context, const int32_t* ranks, int32_t count,
                                       int32_t tag, tandem_transport* part);
/** Fills in the transport of a communicator, which it takes over. */
static inline int tandem_mpi_take(MPI_Comm comm, tandem_transport* transport) {
  int level = MPI_THREAD_SINGLE, rank = 0, ranks = 0;
  tandem_mpi_context* context = (tandem_mpi_context*)calloc(1, sizeof(tandem_mpi_context));
  if (!context) return MPI_ERR_NO_MEM;
  context->comm = comm;
  context->key = MPI_KEYVAL_INVALID;
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  MPI_Query_thread(&level);
  memset(transport, 0, sizeof(*transport));
  transport->size = sizeof(tandem_transport);
  transport->context = context;
  transport->rank = rank;
  transport->ranks = ranks;
  transport->threads = level == MPI_THREAD_MULTIPLE     ? TANDEM_ANY_THREAD
                       : level == MPI_THREAD_SERIALIZED ? TANDEM_ONE_THREAD
                                                        : TANDEM_CALLING_THREAD;
  transport->send = tandem_mpi_send;
  transport->receive = tandem_mpi_receive;
  transport->test = tandem_mpi_test;
  transport->cancel = tandem_mpi_cancel;
  transport->alive = tandem_mpi_alive;
  transport->release = tandem_mpi_release;
  transport->split = tandem_mpi_split;
  transport->on_end = tandem_mpi_on_end;
  transport->text = tandem_mpi_text;
  return MPI_SUCCESS;
}
/** tandem_transport::split. */
static inline int32_t tandem_mpi_split(void* context, const int32_t* ranks, int32_t count,
                                       int32_t tag, tandem_transport* part) {
  MPI_Comm from = ((tandem_mpi_context*)context)->comm, comm = MPI_COMM_NULL;
  MPI_Group all, some;
  int code = MPI_Comm_group(from, &all);
  if (code != MPI_SUCCESS) return code;
  code = MPI_Group_incl(all, count, ranks, &some);
  if (code == MPI_SUCCESS) {
    code = MPI_Comm_create_group(from, some, tag, &comm);
    MPI_Group_free(&some);
  }
  MPI_Group_free(&all);
  return code == MPI_SUCCESS ? tandem_mpi_take(comm, part) : code;
}
/** What tandem_mpi_transport() returns if not all ranks have called it in time; no code of MPI. */
enum { TANDEM_MPI_LATE = -1 };
/** The transport of a duplicate of the communicator, so that messages of the program and of Tandem
 * never meet. Collective over the communicator, as MPI_Comm_dup. MPI must be initialised, at any
 * thread level. Waits at most `seconds` for the other ranks. Returns a code of MPI, or
 * TANDEM_MPI_LATE: MPI cannot cancel a duplicate, so that this one ends when the others call. */
static inline int tandem_mpi_transport(MPI_Comm comm, double seconds, tandem_transport* transport) {
  /* MPI may write to both after this function has returned. */
  struct pending {
    MPI_Comm copy;
    MPI_Request request;
  }* pending = (struct pending*)malloc(sizeof(struct pending));
  const double end = MPI_Wtime() + seconds;
  int finished = 0, code = pending ? MPI_SUCCESS : MPI_ERR_NO_MEM;
  if (!pending) return code;
  pending->copy = MPI_COMM_NULL;
  code = MPI_Comm_idup(comm, &pending->copy, &pending->request);
  while (code == MPI_SUCCESS && !finished) {
    code = MPI_Test(&pending->request, &finished, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS && !finished && MPI_Wtime() > end) return TANDEM_MPI_LATE;
  }
  if (code == MPI_SUCCESS) code = tandem_mpi_take(pending->copy, transport);
  free(pending);
  return code;
}

#endif
