// Any bytes as a TFRecord file, and as an example in one, result in tensors or
// a typed error.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tandem/errors.h"
#include "tandem/records.h"

namespace {

void read(const std::string& path) {
  const tandem::data::TFRecordOptions features{
      .features = {{.name = "a", .dtype = tandem::int64, .shape = tandem::Shape{-1, 2}},
                   {.name = "b", .dtype = tandem::uint8, .shape = tandem::Shape{-1}}}};
  for (const auto& options : {features, tandem::data::TFRecordOptions{}}) {
    try {
      for (const tandem::data::Example& example : tandem::data::from_tfrecord(path, options))
        static_cast<void>(example.size());
    } catch (const tandem::Error&) {
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(bytes), size);
  try {
    tandem::data::serialize_example(tandem::data::parse_example(input));
  } catch (const tandem::Error&) {
  }
  static const std::string path =
      (std::filesystem::temp_directory_path() / ("tandem-records-" + std::to_string(getpid())))
          .string();
  std::ofstream(path, std::ios::binary) << input;
  read(path);
  tandem::data::TFRecordWriter writer(path);
  writer.write(input);
  writer.close();
  read(path);
  std::filesystem::remove(path);
  return 0;
}
