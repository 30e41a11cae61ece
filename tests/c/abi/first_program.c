/* Built with the first version of tandem_c.h (api_1/), run with the library of now. It uses each function of that
 * version, and the layouts that it knew. */
#include <stddef.h>
#include <tandem_c.h>

#include "../check.h"

_Static_assert(TANDEM_C_API == 1, "the first version's header");
_Static_assert(sizeof(tandem_array) == 144 && offsetof(tandem_array, dims) == 16 && offsetof(tandem_array, strides) == 80,
               "tandem_array");
_Static_assert(offsetof(tandem_transport, send) == 32 && offsetof(tandem_transport, text) == 96, "tandem_transport");

static void ignore(tandem_status status, const char* message, void* data) {
  *(int*)data += status == TANDEM_NOT_FOUND && message[0] != '\0';
}

static void has_groups(void) {
  int32_t rank, size;
  tandem_group* group = NULL;
  tandem_transport none = {0};
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_group_create(&none, &group));
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_group_rank(group, &rank, &size));
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_group_sum(group, NULL));
  EXPECT_OK(tandem_group_free(NULL));
}

int main(void) {
  static double x[8][2], y[8][1], dx[8][2], kernel[2][1];
  const tandem_array ax = tandem_view(x, TANDEM_FLOAT64, 2, (int64_t[]){8, 2});
  tandem_array ay = tandem_view(y, TANDEM_FLOAT64, 2, (int64_t[]){8, 1}), spec;
  tandem_array ad = tandem_view(dx, TANDEM_FLOAT64, 2, (int64_t[]){8, 2});
  tandem_array ak = tandem_view(kernel, TANDEM_FLOAT64, 2, (int64_t[]){2, 1});
  tandem_model *model, *loaded;
  double value = 0, first = 0, last = 0;
  int errors = 0;
  EXPECT(tandem_c_api() >= TANDEM_C_API && tandem_version()[0] != '\0');
  EXPECT_OK(tandem_set_threads(1));
  EXPECT_OK(tandem_set_seed(1));
  EXPECT_OK(tandem_model_create("{\"inputs\": [2], \"normalize\": true, \"layers\": [{\"type\": \"dense\", \"units\": 1,"
                                " \"name\": \"d\"}], \"optimizer\": {\"type\": \"sgd\", \"learning_rate\": 0.1},"
                                " \"loss\": \"mse\"}", NULL, &model));
  for (int i = 0; i < 8; ++i) x[i][0] = i, x[i][1] = i * i % 5, y[i][0] = x[i][0] - 2 * x[i][1];
  EXPECT_OK(tandem_model_observe(model, &ax, &ay));
  EXPECT_OK(tandem_evaluate(model, &ax, &ay, &first));
  for (int i = 0; i < 50; ++i) EXPECT_OK(tandem_train(model, &ax, &ay, NULL, &last));
  EXPECT(last < 0.1 * first);
  EXPECT_OK(tandem_backward(model, &ax, &ay, 0, &ad));
  EXPECT_OK(tandem_model_spec(model, 0, &spec));
  EXPECT(spec.rank == 2 && spec.dims[1] == 2);
  EXPECT_OK(tandem_model_get(model, "step", &value));
  EXPECT(value == 50);
  EXPECT_OK(tandem_model_set(model, "learning_rate", 0.05));
  EXPECT_OK(tandem_model_read(model, "d/kernel", &ak));
  EXPECT_OK(tandem_model_write(model, "d/kernel", &ak));
  EXPECT_OK(tandem_predict(model, &ax, &ay));
  EXPECT_OK(tandem_model_save(model, "abi_model"));
  EXPECT_OK(tandem_model_load("abi_model", NULL, &loaded));
  EXPECT_OK(tandem_model_free(loaded));
  tandem_set_error_handler(ignore, &errors);
  EXPECT_STATUS(TANDEM_NOT_FOUND, tandem_model_load("no such file", NULL, &loaded));
  EXPECT(errors == 1 && strcmp(tandem_status_name(TANDEM_NOT_FOUND), "NOT_FOUND") == 0);
  EXPECT_OK(tandem_model_free(model));
  has_groups();
  return end_of_checks();
}
