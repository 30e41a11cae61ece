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
#define TANDEM_C_API 4

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
/* The limit, in seconds, of each wait for other ranks in groups that are made from now on; default:
 * 1800. A wait that reaches it gives TANDEM_DEADLINE_EXCEEDED. */
tandem_status tandem_set_time_limit(double seconds);
double tandem_time_limit(void);
/* For functions of the program, such as those of tandem_mpi.h, that end as Tandem's: has the error
 * with this message, and returns its status. */
tandem_status tandem_fail(tandem_status status, const char* message);
/* Seeds random numbers: initial weights, dropout. */
tandem_status tandem_set_seed(int64_t seed);
/* A power of two: training has the same bits on 1, 2, 4, ... ranks, up to this number. 0, the
 * default: off. All ranks set it alike, between calls. Each rank then passes equally many examples,
 * a multiple of its share of the parts, and windows are TANDEM_UNIMPLEMENTED. */
tandem_status tandem_set_replica_invariant_parts(int32_t parts);

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
/* Sums over the ranks, in place, of equal dtypes and shapes. float32 is summed as float64.
 * Collective. */
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
 * null as memory. Of a model of several: 2 i of input i, 2 i + 1 of result i. */
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
/* One optimizer step on the examples of all ranks, whose numbers may differ; a rank may have none
 * (dims[0] of 0). `weight`: one number per example, or null. `loss` (may be null): the mean over
 * all ranks' examples, in units of normalized targets. Collective. */
tandem_status tandem_train(tandem_model* model, const tandem_array* x, const tandem_array* y,
                           const tandem_array* weight, double* loss);
/* The loss as in tandem_train(), without training. Collective. */
tandem_status tandem_evaluate(tandem_model* model, const tandem_array* x, const tandem_array* y,
                              double* loss);
/* Writes the results for x to y, which is float32 or float64. Not collective. */
tandem_status tandem_predict(const tandem_model* model, const tandem_array* x, tandem_array* y);
/* As tandem_train(), tandem_evaluate() and tandem_predict() for a model of several inputs or
 * outputs: `x` are `inputs` arrays and `y` `outputs` arrays, in the order of the definition, with
 * one number of examples. The loss is the sum of the outputs' losses by "loss_weights". Such a
 * model has neither "normalize", tandem_backward() nor windows. */
tandem_status tandem_train_multi(tandem_model* model, int32_t inputs, const tandem_array* x,
                                 int32_t outputs, const tandem_array* y, const tandem_array* weight,
                                 double* loss);
tandem_status tandem_evaluate_multi(tandem_model* model, int32_t inputs, const tandem_array* x,
                                    int32_t outputs, const tandem_array* y, double* loss);
tandem_status tandem_predict_multi(const tandem_model* model, int32_t inputs, const tandem_array* x,
                                   int32_t outputs, tandem_array* y);
/* For a loss that the program computes: dy is its gradient with respect to the results for x. If
 * `train` is not 0, takes an optimizer step with the gradients summed over the ranks
 * (collective); otherwise not collective. `dx` (may be null) becomes the gradient with respect
 * to x. */
tandem_status tandem_backward(tandem_model* model, const tandem_array* x, const tandem_array* dy,
                              int32_t train, tandem_array* dx);

/* --- structures of options and results --- */

/* Each begins with its size, which the initializer sets, so that later versions may append
 * members: TANDEM_WINDOW_OPTIONS and so on. A null pointer means the defaults, or no report. */
enum { TANDEM_REPLACE_OLDEST = 0, TANDEM_REPLACE_RANDOM = 1 };
typedef struct tandem_window_options {
  size_t size;
  int64_t capacity;    /* most samples of this rank */
  int64_t batch;       /* samples of this rank in a step */
  int64_t min_samples; /* of all ranks, before training starts; 0: batch */
  int32_t replace;     /* the oldest sample; or as reservoir sampling does */
  int32_t reserved;
  double holdout; /* the fraction, 0 to 0.5, of the samples that is never sampled */
  int64_t seed;   /* of the random choices */
} tandem_window_options;
#define TANDEM_WINDOW_OPTIONS \
  { sizeof(tandem_window_options), 65536, 32, 0, TANDEM_REPLACE_OLDEST, 0, 0.0, 0 }

typedef struct tandem_budget {
  size_t size;
  int64_t max_steps;  /* 0: no limit */
  double max_seconds; /* by the clock of rank 0; exceeded by at most one step; 0: no limit */
} tandem_budget;
#define TANDEM_BUDGET \
  { sizeof(tandem_budget), 1, 0.0 }

typedef struct tandem_report {
  size_t size;
  int64_t steps;       /* of the call; 0: the windows have too few samples */
  int64_t step;        /* optimizer steps so far */
  double loss;         /* mean over the steps; NaN: none */
  double holdout_loss; /* of the samples that are never sampled; NaN: none */
  double seconds;      /* of the call */
} tandem_report;
#define TANDEM_REPORT \
  { sizeof(tandem_report), 0, 0, 0.0, 0.0, 0.0 }

typedef struct tandem_trainer_options {
  size_t size;
  int64_t max_lag;       /* pushes that the trainer may have left to do */
  double steps_per_push; /* a fraction: a step every few pushes */
  int32_t threads;       /* of its computations */
  int32_t reserved;
} tandem_trainer_options;
#define TANDEM_TRAINER_OPTIONS \
  { sizeof(tandem_trainer_options), 8, 1.0, 1, 0 }

/* --- windows: samples in memory, of which batches are sampled at random --- */

typedef struct tandem_window tandem_window;
/* A window for samples of the model. It keeps floating-point numbers in the model's dtype; if the
 * model has "normalize", as float64. Takes memory for `capacity` samples at most. Not
 * collective. */
tandem_status tandem_window_create(const tandem_model* model, const tandem_window_options* options,
                                   tandem_window** window);
/* Copies examples, of which there may be none. If a trainer has the window: all ranks push equally
 * often, and a push waits while the trainer is more than max_lag pushes late. */
tandem_status tandem_window_push(tandem_window* window, const tandem_array* x,
                                 const tandem_array* y);
/* The number of samples in the window and of those ever pushed. Either pointer may be null. */
tandem_status tandem_window_count(const tandem_window* window, int64_t* samples, int64_t* pushed);
/* Takes steps on batches that each rank samples from its window, until the budget (null: one step)
 * ends: the same number on all ranks. Ranks may have windows without samples. Collective. */
tandem_status tandem_window_train(tandem_window* window, tandem_model* model,
                                  const tandem_budget* budget, tandem_report* report);
/* Null is no error. */
tandem_status tandem_window_free(tandem_window* window);

/* --- training in the background --- */

typedef struct tandem_trainer tandem_trainer;
/* Starts a thread that trains a copy of the model while the program goes on. It takes the pushes
 * to the window in order, and a fixed number of steps after each, so that results do not depend on
 * timing. Until tandem_trainer_stop(), what else would change the model or the window gives
 * TANDEM_FAILED_PRECONDITION. With a group over MPI between hosts, MPI must have
 * MPI_THREAD_MULTIPLE: otherwise TANDEM_UNIMPLEMENTED. Collective. */
tandem_status tandem_trainer_start(tandem_model* model, tandem_window* window,
                                   const tandem_trainer_options* options, tandem_trainer** trainer);
/* Gives tandem_predict() the weights from after the push that is max_lag before the last one, all
 * at once, or the error of the thread. Waits for nothing. */
tandem_status tandem_trainer_update(tandem_trainer* trainer, tandem_report* report);
/* Trains on what was pushed, ends the thread, and gives the model its state. Frees the handle, also
 * with the error of the thread. All ranks call it. */
tandem_status tandem_trainer_stop(tandem_trainer* trainer, tandem_report* report);

/* --- restart, in the program's own cycle --- */

/* Writes the states of models of one group, of this rank's windows and of the random numbers to a
 * folder for this cycle (at least 0) in `directory`, completely or not at all. The three newest
 * cycles are kept. Collective. */
tandem_status tandem_checkpoint_write(const char* directory, int64_t cycle,
                                      tandem_model* const* models, int32_t n_models,
                                      tandem_window* const* windows, int32_t n_windows);
/* Goes on from the checkpoint of a cycle; -1: the newest whole one. `read` (may be null): which.
 * Another number of ranks deals the windows' samples anew. Collective. TANDEM_NOT_FOUND: there is
 * none; TANDEM_DATA_LOSS: it is damaged. */
tandem_status tandem_checkpoint_read(const char* directory, int64_t cycle,
                                     tandem_model* const* models, int32_t n_models,
                                     tandem_window* const* windows, int32_t n_windows,
                                     int64_t* read);
/* The same as bytes, for the program's own restart file, of a model, a window, or both (null:
 * without). tandem_state_get() writes exactly the number of bytes of tandem_state_size(). Not
 * collective: each rank keeps its own. */
tandem_status tandem_state_size(tandem_model* model, tandem_window* window, size_t* bytes);
tandem_status tandem_state_get(tandem_model* model, tandem_window* window, void* bytes,
                               size_t size);
tandem_status tandem_state_set(tandem_model* model, tandem_window* window, const void* bytes,
                               size_t size);

#ifdef __cplusplus
}
#endif

#endif
