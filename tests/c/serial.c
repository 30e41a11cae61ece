/* Models of one process: training, statistics, layouts, gradients, files. */
#include <fenv.h>
#include <stdlib.h>

#include "check.h"

enum { N = 64 };

static tandem_model* made(const char* definition) {
  tandem_model* model = NULL;
  EXPECT_OK(tandem_set_seed(7));
  EXPECT_OK(tandem_model_create(definition, NULL, &model));
  return model;
}

static double number(unsigned i) { return sin(1.0 + 0.7 * i) + 0.3 * cos(2.9 * i); }

/* y = 1000 + x0 - 2 x1 with x far from 0: learnt in few steps only with statistics. */
static void learns_by_statistics(void) {
  static double x[N][2], y[N][1], p[N][1];
  double loss = 1, first, step, rate, parameters;
  const tandem_array ax = tandem_view(x, TANDEM_FLOAT64, 2, (int64_t[]){N, 2});
  tandem_array ay = tandem_view(y, TANDEM_FLOAT64, 2, (int64_t[]){N, 1});
  tandem_array ap = tandem_view(p, TANDEM_FLOAT64, 2, (int64_t[]){N, 1});
  tandem_model* model = made("{\"inputs\": [2], \"normalize\": true, \"layers\": [{\"type\": \"dense\", \"units\": 1}],"
                             " \"optimizer\": {\"type\": \"adam\", \"learning_rate\": 0.05}, \"loss\": \"mse\"}");
  for (int i = 0; i < N; ++i) {
    x[i][0] = 1e6 + number(2 * i);
    x[i][1] = -500 + 20 * number(2 * i + 1);
    y[i][0] = 1000 + number(2 * i) - 40 * number(2 * i + 1);
  }
  /* In two parts: the statistics are those of all. */
  tandem_array part = ax, targets = ay;
  part.dims[0] = targets.dims[0] = 10;
  EXPECT_OK(tandem_model_observe(model, &part, &targets));
  part.data = x[10];
  targets.data = y[10];
  part.dims[0] = targets.dims[0] = N - 10;
  EXPECT_OK(tandem_model_observe(model, &part, &targets));
  EXPECT_OK(tandem_evaluate(model, &ax, &ay, &first));
  for (int i = 0; i < 300; ++i) EXPECT_OK(tandem_train(model, &ax, &ay, NULL, &loss));
  EXPECT(first > 0.1 && loss < 1e-4);
  EXPECT_OK(tandem_predict(model, &ax, &ap));
  for (int i = 0; i < N; ++i) EXPECT_NEAR(p[i][0], y[i][0], 0.5);
  EXPECT_OK(tandem_model_get(model, "step", &step));
  EXPECT_OK(tandem_model_get(model, "learning_rate", &rate));
  EXPECT_OK(tandem_model_get(model, "parameters", &parameters));
  EXPECT(step == 300 && fabs(rate - 0.05) < 1e-12 && parameters == 3);
  x[3][1] = NAN;
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_model_observe(model, &ax, &ay));
  EXPECT_MESSAGE("[model_observe] x: expected finite numbers, got nan at element 7");
  EXPECT_OK(tandem_model_free(model));
}

/* A saved model goes on as the one that was not: the same bits. */
static void goes_on_from_a_file(void) {
  static float x[N][3];
  static int32_t labels[N];
  static float p[N][4], q[N][4];
  double loss, same;
  tandem_model* loaded = NULL;
  const tandem_array ax = tandem_view(x, TANDEM_FLOAT32, 2, (int64_t[]){N, 3});
  const tandem_array ay = tandem_view(labels, TANDEM_INT32, 1, (int64_t[]){N});
  tandem_array ap = tandem_view(p, TANDEM_FLOAT32, 2, (int64_t[]){N, 4});
  tandem_array aq = tandem_view(q, TANDEM_FLOAT32, 2, (int64_t[]){N, 4});
  tandem_model* model = made(
      "{\"inputs\": [3], \"normalize\": true, \"layers\": [{\"type\": \"dense\", \"units\": 8, \"activation\": \"relu\"},"
      " \"batch_normalization\", {\"type\": \"dense\", \"units\": 4}], \"optimizer\": \"adam\","
      " \"loss\": {\"type\": \"sparse_categorical_crossentropy\", \"from_logits\": true}}");
  for (int i = 0; i < N; ++i) {
    for (int k = 0; k < 3; ++k) x[i][k] = (float)number(3 * i + k);
    labels[i] = (x[i][0] > 0) + 2 * (x[i][1] > 0);
  }
  EXPECT_OK(tandem_model_observe(model, &ax, &ay));
  for (int i = 0; i < 10; ++i) EXPECT_OK(tandem_train(model, &ax, &ay, NULL, &loss));
  EXPECT_OK(tandem_model_set(model, "learning_rate", 0.02));
  EXPECT_OK(tandem_model_save(model, "serial_model"));
  EXPECT_OK(tandem_set_seed(99));
  EXPECT_OK(tandem_model_load("serial_model", NULL, &loaded));
  for (int i = 0; i < 10; ++i) {
    EXPECT_OK(tandem_train(model, &ax, &ay, NULL, &loss));
    EXPECT_OK(tandem_train(loaded, &ax, &ay, NULL, &same));
    EXPECT(loss == same);
  }
  EXPECT_OK(tandem_predict(model, &ax, &ap));
  EXPECT_OK(tandem_predict(loaded, &ax, &aq));
  EXPECT(memcmp(p, q, sizeof p) == 0);
  labels[5] = 4;
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_train(model, &ax, &ay, NULL, &loss));
  labels[5] = 0;
  EXPECT_OK(tandem_train(model, &ax, &ay, NULL, &loss));
  EXPECT_OK(tandem_model_free(model));
  EXPECT_OK(tandem_model_free(loaded));
  FILE* file = fopen("serial_model", "r+b");
  EXPECT(file && fseek(file, -3, SEEK_END) == 0 && fputc('x', file) == 'x');
  if (file) fclose(file);
  EXPECT_STATUS(TANDEM_DATA_LOSS, tandem_model_load("serial_model", NULL, &loaded));
  remove("serial_model");
  EXPECT_STATUS(TANDEM_NOT_FOUND, tandem_model_load("serial_model", NULL, &loaded));
}

/* The same numbers in other places: strides, negative ones, other dtypes, channels first. */
static void reads_any_layout(void) {
  enum { B = 2, H = 3, W = 4, C = 2 };
  static double packed[B][H][W][C], first[B][C][H][W], wide[B][2 * H][W][C];
  static float p[B][C][H][W];
  static double q[B][H][W][C], r[B][H][W][C];
  const char* definitions[2] = {
      "{\"inputs\": [3, 4, 2], \"layers\": [{\"type\": \"conv2d\", \"filters\": 2, \"kernel_size\": 3, \"padding\": \"same\"}]}",
      "{\"inputs\": [3, 4, 2], \"input_layout\": \"channels_first\", \"layers\": [{\"type\": \"conv2d\", \"filters\": 2,"
      " \"kernel_size\": 3, \"padding\": \"same\"}]}"};
  tandem_model *last = made(definitions[0]), *channels_first = made(definitions[1]);
  for (int b = 0; b < B; ++b)
    for (int h = 0; h < H; ++h)
      for (int w = 0; w < W; ++w)
        for (int c = 0; c < C; ++c)
          packed[b][h][w][c] = first[b][c][h][w] = wide[b][2 * (H - 1 - h)][w][c] = number(((b * H + h) * W + w) * C + c);
  tandem_array a = tandem_view(packed, TANDEM_FLOAT64, 4, (int64_t[]){B, H, W, C});
  tandem_array y = tandem_view(q, TANDEM_FLOAT64, 4, (int64_t[]){B, H, W, C});
  EXPECT_OK(tandem_predict(last, &a, &y));
  a.data = &wide[0][2 * (H - 1)][0][0];
  const int64_t strides[4] = {2 * H * W * C, -2 * W * C, C, 1};
  memcpy(a.strides, strides, sizeof strides);
  y.data = r;
  EXPECT_OK(tandem_predict(last, &a, &y));
  EXPECT(memcmp(q, r, sizeof q) == 0);
  a = tandem_view(first, TANDEM_FLOAT64, 4, (int64_t[]){B, C, H, W});
  y = tandem_view(p, TANDEM_FLOAT32, 4, (int64_t[]){B, C, H, W});
  EXPECT_OK(tandem_predict(channels_first, &a, &y));
  for (int b = 0; b < B; ++b)
    for (int h = 0; h < H; ++h)
      for (int w = 0; w < W; ++w)
        for (int c = 0; c < C; ++c) EXPECT(p[b][c][h][w] == (float)q[b][h][w][c]);
  tandem_array spec;
  EXPECT_OK(tandem_model_spec(channels_first, 1, &spec));
  EXPECT(spec.dtype == TANDEM_FLOAT32 && spec.rank == 4 && spec.dims[0] == -1 && spec.dims[1] == C && spec.dims[2] == H);
  EXPECT_OK(tandem_model_free(last));
  EXPECT_OK(tandem_model_free(channels_first));
}

/* L = sum(y^2) / 2 of the program's own: dL/dx against differences, and a step that follows dL/dw. */
static void propagates_the_program_s_gradient(void) {
  enum { B = 3, I = 2, O = 2 };
  static double x[B][I], y[B][O], dx[B][I], kernel[I][O], moved[I][O];
  tandem_array ax = tandem_view(x, TANDEM_FLOAT64, 2, (int64_t[]){B, I});
  tandem_array ay = tandem_view(y, TANDEM_FLOAT64, 2, (int64_t[]){B, O});
  tandem_array adx = tandem_view(dx, TANDEM_FLOAT64, 2, (int64_t[]){B, I});
  tandem_array ak = tandem_view(kernel, TANDEM_FLOAT64, 2, (int64_t[]){I, O});
  tandem_model* model = made(
      "{\"inputs\": [2], \"normalize\": true, \"dtype\": \"float64\", \"layers\": [{\"type\": \"dense\", \"units\": 2,"
      " \"activation\": \"tanh\", \"name\": \"d\"}],"
      " \"optimizer\": {\"type\": \"sgd\", \"learning_rate\": 0.125}, \"loss\": \"mse\"}");
  for (int i = 0; i < B; ++i)
    for (int k = 0; k < 2; ++k) {
      x[i][k] = 3 + 2 * number(2 * i + k);
      y[i][k] = 5 * number(100 + 2 * i + k);
    }
  EXPECT_OK(tandem_model_observe(model, &ax, &ay));
  double changes[B][I];
  const double small = 1e-5;
  for (int i = 0; i < B; ++i)
    for (int k = 0; k < I; ++k) {
      double sums[2] = {0, 0};
      const double kept = x[i][k];
      for (int side = 0; side < 2; ++side) {
        x[i][k] = kept + (side ? small : -small);
        EXPECT_OK(tandem_predict(model, &ax, &ay));
        for (int n = 0; n < B * O; ++n) sums[side] += ((double*)y)[n] * ((double*)y)[n] / 2;
      }
      x[i][k] = kept;
      changes[i][k] = (sums[1] - sums[0]) / (2 * small);
    }
  EXPECT_OK(tandem_predict(model, &ax, &ay));
  EXPECT_OK(tandem_model_read(model, "d/kernel", &ak));
  EXPECT_OK(tandem_backward(model, &ax, &ay, 0, &adx));
  for (int i = 0; i < B * I; ++i) EXPECT_NEAR(((double*)dx)[i], ((double*)changes)[i], 1e-6 * (1 + fabs(((double*)changes)[i])));
  ak.data = moved;
  EXPECT_OK(tandem_model_read(model, "d/kernel", &ak));
  EXPECT(memcmp(kernel, moved, sizeof kernel) == 0);
  memset(dx, 0, sizeof dx);
  EXPECT_OK(tandem_backward(model, &ax, &ay, 1, &adx));
  for (int i = 0; i < B * I; ++i) EXPECT_NEAR(((double*)dx)[i], ((double*)changes)[i], 1e-6 * (1 + fabs(((double*)changes)[i])));
  EXPECT_OK(tandem_model_read(model, "d/kernel", &ak));
  /* The step was -0.125 dL/dkernel. */
  for (int n = 0; n < I * O; ++n) {
    double sums[2] = {0, 0};
    ak.data = kernel;
    const double kept = ((double*)kernel)[n];
    for (int side = 0; side < 2; ++side) {
      ((double*)kernel)[n] = kept + (side ? small : -small);
      EXPECT_OK(tandem_model_write(model, "d/kernel", &ak));
      tandem_array bias = tandem_view((double[2]){0, 0}, TANDEM_FLOAT64, 1, (int64_t[]){2});
      EXPECT_OK(tandem_model_write(model, "d/bias", &bias));
      EXPECT_OK(tandem_predict(model, &ax, &ay));
      for (int k = 0; k < B * O; ++k) sums[side] += ((double*)y)[k] * ((double*)y)[k] / 2;
    }
    ((double*)kernel)[n] = kept;
    const double step = -0.125 * (sums[1] - sums[0]) / (2 * small);
    EXPECT_NEAR(((double*)moved)[n] - kept, step, 1e-6 * (1 + fabs(step)));
  }
  EXPECT_OK(tandem_model_free(model));
}

/* A weight of 0 takes an example out; the mean is over all examples. */
static void weighs_examples(void) {
  float x[2] = {1, 5}, y[2] = {3, 100}, weight[2] = {1, 0};
  double loss, alone;
  tandem_model* model = made("{\"inputs\": [1], \"layers\": [{\"type\": \"dense\", \"units\": 1}], \"optimizer\": \"sgd\", \"loss\": \"mse\"}");
  tandem_array ax = tandem_view(x, TANDEM_FLOAT32, 2, (int64_t[]){2, 1}), ay = tandem_view(y, TANDEM_FLOAT32, 2, (int64_t[]){2, 1});
  tandem_array aw = tandem_view(weight, TANDEM_FLOAT32, 1, (int64_t[]){2});
  ax.dims[0] = ay.dims[0] = 1;
  EXPECT_OK(tandem_evaluate(model, &ax, &ay, &alone));
  ax.dims[0] = ay.dims[0] = 2;
  EXPECT_OK(tandem_train(model, &ax, &ay, &aw, &loss));
  EXPECT_NEAR(loss, alone / 2, 1e-6 * alone);
  EXPECT_OK(tandem_model_free(model));
}

/* The caller's floating-point environment is as before. */
static void leaves_the_float_environment(void) {
  float x[2] = {-1000, 1e4f}, y[2];
  tandem_model* model = made("{\"inputs\": [1], \"layers\": [{\"type\": \"activation\", \"activation\": \"sigmoid\"}]}");
  tandem_array ax = tandem_view(x, TANDEM_FLOAT32, 2, (int64_t[]){2, 1}), ay = tandem_view(y, TANDEM_FLOAT32, 2, (int64_t[]){2, 1});
  feclearexcept(FE_ALL_EXCEPT);
  fesetround(FE_UPWARD);
  EXPECT_OK(tandem_predict(model, &ax, &ay));
  EXPECT(fetestexcept(FE_ALL_EXCEPT) == 0);
  EXPECT(fegetround() == FE_UPWARD);
  fesetround(FE_TONEAREST);
  EXPECT_OK(tandem_model_free(model));
}

int main(void) {
  learns_by_statistics();
  goes_on_from_a_file();
  reads_any_layout();
  propagates_the_program_s_gradient();
  weighs_examples();
  leaves_the_float_environment();
  return end_of_checks();
}
