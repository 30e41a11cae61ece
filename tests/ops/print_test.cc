#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>

#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/errors.h"
#include "tandem/math.h"

namespace tandem::print_test {
namespace {

std::string text(const Tensor& tensor) {
  std::ostringstream out;
  out << tensor;
  return out.str();
}

// The expected strings are the output of NumPy 1.24 for the same arrays.
TEST(Printing, EqualsNumPysOutput) {
  EXPECT_EQ(text(constant({{22.0, 28.0}, {49.0, 64.0}})),
            "[[22. 28.]\n"
            " [49. 64.]]");
  EXPECT_EQ(text(constant({1.5, 2.0, -0.25})), "[ 1.5   2.   -0.25]");
  EXPECT_EQ(text(constant({0.1, 0.2, 1.0 / 3.0})), "[0.1        0.2        0.33333334]");
  EXPECT_EQ(text(constant({0.1, 0.2, 1.0 / 3.0}, {.dtype = float64})),
            "[0.1        0.2        0.33333333]");
  EXPECT_EQ(text(constant({1e-5, 1.0})), "[1.e-05 1.e+00]");
  EXPECT_EQ(text(constant({1e10, -1.5})), "[ 1.0e+10 -1.5e+00]");
  EXPECT_EQ(text(constant({1234567.0, 0.5}, {.dtype = float64})), "[1.234567e+06 5.000000e-01]");
  EXPECT_EQ(text(constant({1e-200, 1e200}, {.dtype = float64})), "[1.e-200 1.e+200]");
  EXPECT_EQ(text(constant({0.0, -0.0})), "[ 0. -0.]");
  EXPECT_EQ(text(constant({1.0, 999.0})), "[  1. 999.]");
  EXPECT_EQ(text(constant({1.0, 1001.0})), "[1.000e+00 1.001e+03]");
  EXPECT_EQ(text(constant({0.1, 2.5, 100.0}, {.dtype = float16})), "[  0.1   2.5 100. ]");
  EXPECT_EQ(text(constant({1, -20, 300})), "[  1 -20 300]");
  EXPECT_EQ(text(constant({{true, false}, {false, true}})),
            "[[ True False]\n"
            " [False  True]]");
  EXPECT_EQ(text(constant({std::nan(""), 1.0, -INFINITY})), "[ nan   1. -inf]");
  EXPECT_EQ(text(constant({INFINITY, 1e10})), "[   inf 1.e+10]");
  EXPECT_EQ(text(constant({std::nan("")})), "[nan]");
  EXPECT_EQ(text(constant(22.0)), "22.0");
  EXPECT_EQ(text(constant(1e-5)), "1e-05");
  EXPECT_EQ(text(constant(1e16)), "1e+16");
  EXPECT_EQ(text(constant(123456.789, {.dtype = float64})), "123456.789");
  EXPECT_EQ(text(constant(0.1)), "0.1");
  EXPECT_EQ(text(constant(-7)), "-7");
  EXPECT_EQ(text(constant(true)), "True");
  EXPECT_EQ(text(constant(-INFINITY)), "-inf");
  EXPECT_EQ(text(zeros({2, 0, 3})), "[]");
  EXPECT_EQ(text(range(30)),
            "[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23\n"
            " 24 25 26 27 28 29]");
  EXPECT_EQ(text(range(1001)), "[   0    1    2 ...  998  999 1000]");
  EXPECT_EQ(text(reshape(range(8), {2, 2, 2})),
            "[[[0 1]\n"
            "  [2 3]]\n"
            "\n"
            " [[4 5]\n"
            "  [6 7]]]");
  EXPECT_EQ(text(reshape(range(2000), {40, 50})),
            "[[   0    1    2 ...   47   48   49]\n"
            " [  50   51   52 ...   97   98   99]\n"
            " [ 100  101  102 ...  147  148  149]\n"
            " ...\n"
            " [1850 1851 1852 ... 1897 1898 1899]\n"
            " [1900 1901 1902 ... 1947 1948 1949]\n"
            " [1950 1951 1952 ... 1997 1998 1999]]");
  EXPECT_EQ(text(reshape(range(5000), {5, 10, 100})),
            "[[[   0    1    2 ...   97   98   99]\n"
            "  [ 100  101  102 ...  197  198  199]\n"
            "  [ 200  201  202 ...  297  298  299]\n"
            "  ...\n"
            "  [ 700  701  702 ...  797  798  799]\n"
            "  [ 800  801  802 ...  897  898  899]\n"
            "  [ 900  901  902 ...  997  998  999]]\n"
            "\n"
            " [[1000 1001 1002 ... 1097 1098 1099]\n"
            "  [1100 1101 1102 ... 1197 1198 1199]\n"
            "  [1200 1201 1202 ... 1297 1298 1299]\n"
            "  ...\n"
            "  [1700 1701 1702 ... 1797 1798 1799]\n"
            "  [1800 1801 1802 ... 1897 1898 1899]\n"
            "  [1900 1901 1902 ... 1997 1998 1999]]\n"
            "\n"
            " [[2000 2001 2002 ... 2097 2098 2099]\n"
            "  [2100 2101 2102 ... 2197 2198 2199]\n"
            "  [2200 2201 2202 ... 2297 2298 2299]\n"
            "  ...\n"
            "  [2700 2701 2702 ... 2797 2798 2799]\n"
            "  [2800 2801 2802 ... 2897 2898 2899]\n"
            "  [2900 2901 2902 ... 2997 2998 2999]]\n"
            "\n"
            " [[3000 3001 3002 ... 3097 3098 3099]\n"
            "  [3100 3101 3102 ... 3197 3198 3199]\n"
            "  [3200 3201 3202 ... 3297 3298 3299]\n"
            "  ...\n"
            "  [3700 3701 3702 ... 3797 3798 3799]\n"
            "  [3800 3801 3802 ... 3897 3898 3899]\n"
            "  [3900 3901 3902 ... 3997 3998 3999]]\n"
            "\n"
            " [[4000 4001 4002 ... 4097 4098 4099]\n"
            "  [4100 4101 4102 ... 4197 4198 4199]\n"
            "  [4200 4201 4202 ... 4297 4298 4299]\n"
            "  ...\n"
            "  [4700 4701 4702 ... 4797 4798 4799]\n"
            "  [4800 4801 4802 ... 4897 4898 4899]\n"
            "  [4900 4901 4902 ... 4997 4998 4999]]]");
  EXPECT_EQ(text(cast(range(1200), float32) / 7.0),
            "[0.0000000e+00 1.4285715e-01 2.8571430e-01 ... 1.7100000e+02 1.7114285e+02\n"
            " 1.7128572e+02]");
  EXPECT_EQ(text(reshape(cast(range(40), float64) / 3.0, {2, 20})),
            "[[ 0.          0.33333333  0.66666667  1.          1.33333333  1.66666667\n"
            "   2.          2.33333333  2.66666667  3.          3.33333333  3.66666667\n"
            "   4.          4.33333333  4.66666667  5.          5.33333333  5.66666667\n"
            "   6.          6.33333333]\n"
            " [ 6.66666667  7.          7.33333333  7.66666667  8.          8.33333333\n"
            "   8.66666667  9.          9.33333333  9.66666667 10.         10.33333333\n"
            "  10.66666667 11.         11.33333333 11.66666667 12.         12.33333333\n"
            "  12.66666667 13.        ]]");
}

TEST(Printing, ShowsSixteenBitNumbersByTheirShortestDigits) {
  EXPECT_EQ(text(constant({0.1, 1.0, 3.14159}, {.dtype = bfloat16})), "[0.1  1.   3.14]");
  EXPECT_EQ(text(constant(65504.0, {.dtype = float16})), "65500.0");
}

TEST(Printing, RejectsAnUndefinedTensor) { EXPECT_THROW(text(Tensor()), FailedPreconditionError); }

}  // namespace
}  // namespace tandem::print_test
