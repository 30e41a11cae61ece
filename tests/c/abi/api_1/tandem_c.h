/* Tandem in C: models that a program trains and asks, in C11 and C++. docs/simulation.md is the
 * guide.
 *
 * A function returns a status, 0 for success. It never throws, exits or aborts. After an error
 * tandem_last_error() has the message, and nothing has changed unless the function says
 * otherwise. Handles are opaque numbers: one that is null, was freed, or is of another kind
 * gives TANDEM_INVALID_ARGUMENT. Functions may be called from any thread; those of one model
 * take turns, and predictions run side by side. Floating-point traps, flags and the rounding
 * mode of the caller are as before after each call.
 *
 * Collective functions are called by all ranks of the model's group, in the same order. If the
 * arguments of a rank are wrong, every rank gets the same status, and the group goes on. After
 * TANDEM_UNAVAILABLE, TANDEM_ABORTED and TANDEM_DEADLINE_EXCEEDED the group is at its end:
 * collective functions return an error at once, all others work.
 *
 * A program that was built with this header runs with every later library of the same
 * TANDEM_C_API or a greater one. */
#ifndef TANDEM_C_H
#define TANDEM_C_H

#include <stddef.h>
#include <stdint.h>

#include "tandem_transport.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. */
#define TANDEM_C_API 1

typedef int32_t tandem_status;
enum {
  TANDEM_OK = 0,
  TANDEM_INVALID_ARGUMENT = 1,    /* an argument is never valid */
  TANDEM_NOT_FOUND = 2,           /* a file or name does not exist */
  TANDEM_ALREADY_EXISTS = 3,      /* a name is in use */
  TANDEM_RESOURCE_EXHAUSTED = 4,  /* memory, disk, threads */
  TANDEM_FAILED_PRECONDITION = 5, /* the object is not in a state for the call */
  TANDEM_OUT_OF_RANGE = 6,        /* a read past the end */
  TANDEM_DEADLINE_EXCEEDED = 7,   /* a wait for other ranks reached its time limit */
  TANDEM_UNAVAILABLE = 8,         /* a rank cannot be reached */
  TANDEM_ABORTED = 9,             /* another rank failed */
  TANDEM_DATA_LOSS = 10,          /* a file is damaged */
  TANDEM_UNIMPLEMENTED = 11,      /* valid, but not supported */
  TANDEM_RUNTIME = 12,            /* a setting came too late */
  TANDEM_INTERNAL = 13            /* a bug in Tandem */
};

/* --- the library --- */

/* TANDEM_C_API of the library: at least that of the header. */
int32_t tandem_c_api(void);
/* "0.1.0". */
const char* tandem_version(void);
/* The message of the calling thread's last function that returns a status: "" after success,
 * never null, valid until the thread's next such call. */
const char* tandem_last_error(void);
/* "INVALID_ARGUMENT"; "UNKNOWN" for another number. */
const char* tandem_status_name(tandem_status status);
/* Called with each error, on the thread whose call fails, before that call returns. Null, the
 * default: none. */
typedef void (*tandem_error_handler)(tandem_status status, const char* message, void* data);
void tandem_set_error_handler(tandem_error_handler handler, void* data);
/* The number of threads of a rank; 0, the default: its cores, divided by the ranks of this host
 * that share them. TANDEM_RUNTIME once a model or tensor exists. */
tandem_status tandem_set_threads(int32_t threads);
/* Seeds random numbers: initial weights, dropout. */
tandem_status tandem_set_seed(int64_t seed);

/* --- arrays of the program: read or written during a call, never kept --- */

enum { TANDEM_FLOAT32 = 1, TANDEM_FLOAT64 = 2, TANDEM_INT32 = 3, TANDEM_INT64 = 4 };
#define TANDEM_MAX_RANK 8
typedef struct tandem_array {
  void* data;
  int32_t dtype, rank;
  int64_t dims[TANDEM_MAX_RANK];    /* the slowest first: dims[0] is the batch */
  int64_t strides[TANDEM_MAX_RANK]; /* in elements, also negative; all 0: packed, row-major */
} tandem_array;
/* Packed, row-major memory: tandem_view(p, TANDEM_FLOAT64, 2, (int64_t[]){rows, columns}). A
 * rank that is out of range gives an array that other functions refuse. */
tandem_array tandem_view(const void* data, int32_t dtype, int32_t rank, const int64_t* dims);

/* --- groups: the ranks that train together --- */

typedef struct tandem_group tandem_group;
/* A group over functions of the program that exchange bytes. tandem_group_from_mpi(), in
 * tandem_mpi.h, makes one of a communicator.
 * Collective over the ranks of the transport. Takes the transport over: its release() is called
 * when the group and its models are freed, also after an error. */
tandem_status tandem_group_create(const tandem_transport* transport, tandem_group** group);
/* The rank and the number of ranks. Either pointer may be null. */
tandem_status tandem_group_rank(const tandem_group* group, int32_t* rank, int32_t* size);
/* Sums over the ranks, in place: float64 or int64, of equal shapes. Collective. */
tandem_status tandem_group_sum(tandem_group* group, tandem_array* array);
/* Frees the handle; the group ends when its models are freed, too. Null is no error. */
tandem_status tandem_group_free(tandem_group* group);

/* --- models --- */

typedef struct tandem_model tandem_model;
/* A model of JSON text (docs/simulation.md). `group` null: of this process alone. All ranks
 * start with the weights of rank 0. Collective. */
tandem_status tandem_model_create(const char* definition, tandem_group* group,
                                  tandem_model** model);
/* A model that tandem_model_save() has written, as it was: weights, optimizer, learning rate,
 * statistics. Collective; every rank reads the file. */
tandem_status tandem_model_load(const char* path, tandem_group* group, tandem_model** model);
/* Writes one file, completely or not at all. Not collective: one rank calls it. */
tandem_status tandem_model_save(const tandem_model* model, const char* path);
/* Null is no error. */
tandem_status tandem_model_free(tandem_model* model);
/* The dtype and sizes of the input (output 0) or result (output 1), with -1 for the batch and
 * null as memory. */
tandem_status tandem_model_spec(const tandem_model* model, int32_t output, tandem_array* spec);
/* "step": optimizer steps so far; "learning_rate": of the next step; "parameters": number of
 * trained elements. */
tandem_status tandem_model_get(const tandem_model* model, const char* name, double* value);
/* "learning_rate", which replaces a schedule. Not collective: all ranks set the same. */
tandem_status tandem_model_set(tandem_model* model, const char* name, double value);
/* Copies a weight ("dense/kernel") to or from an array of its shape. tandem_model_write() is not
 * collective: all ranks write the same. TANDEM_NOT_FOUND lists the names. */
tandem_status tandem_model_read(const tandem_model* model, const char* weight, tandem_array* to);
tandem_status tandem_model_write(tandem_model* model, const char* weight, const tandem_array* from);
/* Adds examples of all ranks to the mean and variance of each feature, by which a model with
 * "normalize" shifts and scales inputs and results. Integer targets are not counted. NaN or
 * infinity gives TANDEM_INVALID_ARGUMENT. Collective. */
tandem_status tandem_model_observe(tandem_model* model, const tandem_array* x,
                                   const tandem_array* y);
/* One optimizer step on the examples of all ranks, whose numbers may differ. `weight`: one
 * number per example, or null. `loss` (may be null): the mean over all ranks' examples, in units
 * of normalized targets. Collective. */
tandem_status tandem_train(tandem_model* model, const tandem_array* x, const tandem_array* y,
                           const tandem_array* weight, double* loss);
/* The loss as in tandem_train(), without training. Collective. */
tandem_status tandem_evaluate(tandem_model* model, const tandem_array* x, const tandem_array* y,
                              double* loss);
/* Writes the results for x to y, which is float32 or float64. Not collective. */
tandem_status tandem_predict(const tandem_model* model, const tandem_array* x, tandem_array* y);
/* For a loss that the program computes: dy is its gradient with respect to the results for x. If
 * `train` is not 0, takes an optimizer step with the gradients summed over the ranks
 * (collective); otherwise not collective. `dx` (may be null) becomes the gradient with respect
 * to x. */
tandem_status tandem_backward(tandem_model* model, const tandem_array* x, const tandem_array* dy,
                              int32_t train, tandem_array* dx);

#ifdef __cplusplus
}
#endif

#endif
