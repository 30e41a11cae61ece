/// @file
/// NumPy's files of arrays: ".npy", and ".npz" archives of several.
///
/// Errors are those of tandem/datasets.h. Messages name the file and, in
/// archives, the array.
#pragma once

#include <map>
#include <string>

#include "tandem/tensor.h"

namespace tandem::data {

/// Options of read_npy() and read_npz().
struct NpyOptions {
  /// Reads elements of two raw bytes, "V2", as bfloat16: so ml_dtypes and
  /// write_npy() store it. NumPy has no such dtype; false: they are refused.
  bool v2_is_bfloat16 = false;
};

/// Reads a file that numpy.save() has written, of format 1.0, 2.0 or 3.0, in
/// either order of axes and of bytes, into CPU memory. Throws
/// InvalidArgumentError that names the dtype if Tandem lacks it, and for
/// objects and records.
Tensor read_npy(const std::string& path, const NpyOptions& options = {});

/// Writes a tensor as numpy.save() does; bfloat16 as "V2". Replaces the file at
/// once, or not at all. Throws the errors of writing files:
/// ResourceExhaustedError, NotFoundError, FailedPreconditionError.
void write_npy(const std::string& path, const Tensor& tensor);

/// Reads all arrays of a file that numpy.savez() or numpy.savez_compressed()
/// has written, by name. Checks their checksums. Throws the errors of
/// read_npy().
std::map<std::string, Tensor> read_npz(const std::string& path, const NpyOptions& options = {});

/// Options of write_npz().
struct NpzOptions {
  bool compressed = false;  ///< as numpy.savez_compressed()
};

/// Writes arrays as numpy.savez() does. Throws the errors of write_npy(), and
/// InvalidArgumentError for a name that is empty, has more than 65,000 bytes or
/// has a NUL.
void write_npz(const std::string& path, const std::map<std::string, Tensor>& arrays,
               const NpzOptions& options = {});

}  // namespace tandem::data
