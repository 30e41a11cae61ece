/* Checks of C programs: each failure is printed, and the program ends with 1. */
#ifndef CHECK_H
#define CHECK_H

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tandem_c.h>

static int failures = 0;

#define EXPECT(condition)                                                  \
  do {                                                                     \
    if (!(condition)) {                                                    \
      ++failures;                                                          \
      printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
    }                                                                      \
  } while (0)

/* The call has this status, and a message if it is an error. */
#define EXPECT_STATUS(expected, call)                                                     \
  do {                                                                                    \
    const tandem_status got = (call);                                                     \
    if (got != (expected) || (got == TANDEM_OK) != (tandem_last_error()[0] == '\0')) {    \
      ++failures;                                                                         \
      printf("%s:%d: %s: expected %s, got %s: %s\n", __FILE__, __LINE__, #call,           \
             tandem_status_name(expected), tandem_status_name(got), tandem_last_error()); \
    }                                                                                     \
  } while (0)

#define EXPECT_OK(call) EXPECT_STATUS(TANDEM_OK, call)
#define EXPECT_MESSAGE(part) EXPECT(strstr(tandem_last_error(), part) != NULL)
#define EXPECT_NEAR(a, b, tolerance) EXPECT(fabs((a) - (b)) <= (tolerance))

static int end_of_checks(void) {
  if (failures == 0) puts("ok");
  return failures != 0;
}

#endif
