// Any bytes as a compressed file of text lines result in lines or a typed error.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tandem/errors.h"
#include "tandem/text_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using tandem::data::Compression;
  static const std::string path =
      (std::filesystem::temp_directory_path() / ("tandem-lines-" + std::to_string(getpid())))
          .string();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes), static_cast<std::streamsize>(size));
  for (const Compression compression :
       {Compression::kAuto, Compression::kGzip, Compression::kZlib}) {
    try {
      static_cast<void>(tandem::data::read_lines(path, compression).unique());
    } catch (const tandem::Error&) {
    }
  }
  std::filesystem::remove(path);
  return 0;
}
