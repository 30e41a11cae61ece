#include "data/images/module/jpeg.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>

#include <jerror.h>
#include <jpeglib.h>

#include "core/status.h"
#include "data/images/module/decoding.h"

namespace tandem::data {
namespace {

// The library reports errors by a function that must not return. Functions that it may leave by
// longjmp() have no objects with destructors.
struct ErrorManager {
  jpeg_error_mgr base{};
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX] = "";
};

[[noreturn]] void leave(j_common_ptr common) {
  auto& manager = *reinterpret_cast<ErrorManager*>(common->err);
  common->err->format_message(common, manager.message);
  std::longjmp(manager.jump, 1);
}

// Data that ends early is an error: the library would fill the rest with grey.
void on_message(j_common_ptr common, int level) {
  if (level >= 0) return;
  const int code = common->err->msg_code;
  if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER) leave(common);
}

jpeg_error_mgr* prepared(ErrorManager& manager) {
  jpeg_std_error(&manager.base);
  manager.base.error_exit = leave;
  manager.base.emit_message = on_message;
  manager.base.output_message = [](j_common_ptr) {};
  return &manager.base;
}

// A small file may ask for any number of passes over a large image.
constexpr int kMaxScans = 500;
void on_progress(j_common_ptr common) {
  if (reinterpret_cast<j_decompress_ptr>(common)->input_scan_number <= kMaxScans) return;
  auto& manager = *reinterpret_cast<ErrorManager*>(common->err);
  std::snprintf(manager.message, sizeof manager.message, "more than %d scans", kMaxScans);
  std::longjmp(manager.jump, 1);
}

class JpegReader {
 public:
  explicit JpegReader(const DecodeCall& call) : call_(call) {
    info_.err = prepared(errors_);
    progress_.progress_monitor = on_progress;
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  Pixels read() {
    if (!read_header()) refuse();
    check_size(call_, info_.image_height, info_.image_width);
    const bool cmyk = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    const bool grey =
        call_.channels == 1 || (call_.channels == 0 && info_.jpeg_color_space == JCS_GRAYSCALE);
    info_.out_color_space = cmyk ? JCS_CMYK : grey ? JCS_GRAYSCALE : JCS_RGB;
    if (!start()) refuse();
    const std::int64_t stored = info_.output_components;
    Pixels pixels{info_.output_height, info_.output_width, stored, {}};
    if (cmyk || call_.channels == 4) {
      pixels.values.resize(static_cast<std::size_t>(pixels.height * pixels.width * stored));
      rows_ = pixels.values.data();
    } else {
      rows_ = call_.memory(pixels.height, pixels.width, stored);
    }
    if (!read_rows()) refuse();
    if (cmyk) pixels = without_black(pixels, info_.saw_Adobe_marker);
    if (cmyk && call_.channels == 1) pixels = grey_of(pixels);
    if (call_.channels == 4) pixels = with_alpha(pixels);
    return pixels;
  }

 private:
  bool read_header() {
    if (setjmp(errors_.jump)) return false;
    jpeg_create_decompress(&info_);
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(call_.bytes.data()),
                 call_.bytes.size());
    jpeg_read_header(&info_, TRUE);
    return true;
  }
  bool start() {
    if (setjmp(errors_.jump)) return false;
    info_.progress = &progress_;
    info_.dct_method = JDCT_ISLOW;
    jpeg_start_decompress(&info_);
    return true;
  }
  bool read_rows() {
    if (setjmp(errors_.jump)) return false;
    const std::size_t width =
        std::size_t{info_.output_width} * static_cast<std::size_t>(info_.output_components);
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = rows_ + info_.output_scanline * width;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    return true;
  }
  [[noreturn]] void refuse() const {
    fail_broken(call_, "JPEG", errors_.message, info_.output_scanline, info_.image_height);
  }

  // Adobe's programs store inks inverted.
  static Pixels without_black(const Pixels& inks, bool inverted) {
    Pixels pixels{inks.height, inks.width, 3, {}};
    pixels.values.reserve(inks.values.size() / 4 * 3);
    for (std::size_t at = 0; at < inks.values.size(); at += 4)
      for (std::size_t ink = 0; ink < 3; ++ink) {
        const unsigned colour = inverted ? inks.values[at + ink] : 255u - inks.values[at + ink];
        const unsigned light = inverted ? inks.values[at + 3] : 255u - inks.values[at + 3];
        pixels.values.push_back(static_cast<std::uint8_t>((colour * light + 127) / 255));
      }
    return pixels;
  }
  static Pixels with_alpha(const Pixels& colours) {
    Pixels pixels{colours.height, colours.width, 4, {}};
    pixels.values.reserve(colours.values.size() / 3 * 4);
    for (std::size_t at = 0; at < colours.values.size(); at += 3) {
      pixels.values.insert(pixels.values.end(), &colours.values[at], &colours.values[at] + 3);
      pixels.values.push_back(255);
    }
    return pixels;
  }

  const DecodeCall& call_;
  ErrorManager errors_;
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct info_{};
  std::uint8_t* rows_ = nullptr;
};

// Writes rows into memory that the library allocates.
bool write_rows(jpeg_compress_struct& info, ErrorManager& errors, const Pixels& pixels, int quality,
                unsigned char*& memory, unsigned long& size) {
  if (setjmp(errors.jump)) return false;
  jpeg_create_compress(&info);
  jpeg_mem_dest(&info, &memory, &size);
  info.image_height = static_cast<JDIMENSION>(pixels.height);
  info.image_width = static_cast<JDIMENSION>(pixels.width);
  info.input_components = static_cast<int>(pixels.channels);
  info.in_color_space = pixels.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  jpeg_start_compress(&info, TRUE);
  const auto width = static_cast<std::size_t>(pixels.width * pixels.channels);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(pixels.values.data() + info.next_scanline * width);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  return true;
}

}  // namespace

Pixels decode_jpeg(const DecodeCall& call) { return JpegReader(call).read(); }

std::vector<std::uint8_t> encode_jpeg(const Pixels& pixels, std::int64_t quality) {
  ErrorManager errors;
  jpeg_compress_struct info{};
  info.err = prepared(errors);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  const bool written = write_rows(info, errors, pixels, static_cast<int>(quality), memory, size);
  jpeg_destroy_compress(&info);
  std::vector<std::uint8_t> bytes(memory, memory + (written ? size : 0));
  std::free(memory);
  if (!written) fail<InvalidArgumentError>("[encode_jpeg] {}", errors.message);
  return bytes;
}

}  // namespace tandem::data
