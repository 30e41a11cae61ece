#include "data/images/module/png.h"

#include <csetjmp>
#include <cstring>

#include <png.h>

#include "core/status.h"
#include "data/images/module/decoding.h"

namespace tandem::data {
namespace {

// Functions that the library may leave by longjmp() have no objects with destructors.
class PngReader {
 public:
  explicit PngReader(const DecodeCall& call)
      : call_(call),
        png_(png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning)),
        info_(png_ ? png_create_info_struct(png_) : nullptr) {
    if (!info_) fail<ResourceExhaustedError>("[{}] libpng could not be initialised", call.op);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  Pixels read() {
    if (!read_header()) refuse();
    height_ = png_get_image_height(png_, info_);
    check_size(call_, height_, png_get_image_width(png_, info_));
    const int type = png_get_color_type(png_, info_);
    const bool alpha =
        (type & PNG_COLOR_MASK_ALPHA) != 0 || png_get_valid(png_, info_, PNG_INFO_tRNS) != 0;
    channels_ = call_.channels != 0                  ? call_.channels
                : alpha                              ? 4
                : (type & PNG_COLOR_MASK_COLOR) != 0 ? 3
                                                     : 1;
    // The library's grey depends on the gamma of the file: colours are read and converted here.
    const bool to_grey = channels_ == 1 && (type & PNG_COLOR_MASK_COLOR) != 0;
    if (to_grey) channels_ = 3;
    if (!convert(type)) refuse();
    width_ = std::size_t{png_get_image_width(png_, info_)} * static_cast<std::size_t>(channels_);
    TANDEM_ASSERT(png_get_rowbytes(png_, info_) == width_);
    Pixels pixels{
        static_cast<std::int64_t>(height_), png_get_image_width(png_, info_), channels_, {}};
    if (to_grey) {
      pixels.values.resize(height_ * width_);
      rows_ = pixels.values.data();
    } else {
      rows_ = call_.memory(pixels.height, pixels.width, channels_);
    }
    if (!read_rows()) refuse();
    if (to_grey) pixels = grey_of(pixels);
    return pixels;
  }

 private:
  [[noreturn]] static void on_error(png_structp png, png_const_charp message) {
    auto& reader = *static_cast<PngReader*>(png_get_error_ptr(png));
    std::strncpy(reader.message_, message, sizeof reader.message_ - 1);
    png_longjmp(png, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void on_read(png_structp png, png_bytep to, std::size_t count) {
    auto& reader = *static_cast<PngReader*>(png_get_io_ptr(png));
    if (count > reader.call_.bytes.size() - reader.at_) png_error(png, "the file ends early");
    std::memcpy(to, reader.call_.bytes.data() + reader.at_, count);
    reader.at_ += count;
  }

  bool read_header() {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_set_read_fn(png_, this, on_read);
    // Sizes are checked by this class. Text and profiles are not used.
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, 0);
    png_set_chunk_malloc_max(png_, 8'000'000);
    png_read_info(png_, info_);
    return true;
  }

  bool convert(int type) {
    if (setjmp(png_jmpbuf(png_))) return false;
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png_);
    png_set_strip_16(png_);
    if (channels_ == 4) {
      if (png_get_valid(png_, info_, PNG_INFO_tRNS)) png_set_tRNS_to_alpha(png_);
      png_set_add_alpha(png_, 0xff, PNG_FILLER_AFTER);
    } else {
      png_set_strip_alpha(png_);
    }
    if (channels_ > 1 && (type & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png_);
    passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  bool read_rows() {
    if (setjmp(png_jmpbuf(png_))) return false;
    for (pass_ = 0; pass_ < passes_; ++pass_)
      for (row_ = 0; row_ < height_; ++row_) png_read_row(png_, rows_ + row_ * width_, nullptr);
    png_read_end(png_, nullptr);
    return true;
  }

  [[noreturn]] void refuse() const {
    fail_broken(call_, "PNG", message_, static_cast<std::int64_t>(row_),
                static_cast<std::int64_t>(height_));
  }

  const DecodeCall& call_;
  char message_[128] = "";
  png_structp png_;
  png_infop info_;
  std::size_t at_ = 0, height_ = 0, width_ = 0, row_ = 0;
  std::int64_t channels_ = 0;
  int passes_ = 1, pass_ = 0;
  std::uint8_t* rows_ = nullptr;
};

}  // namespace

Pixels decode_png(const DecodeCall& call) { return PngReader(call).read(); }

std::vector<std::uint8_t> encode_png(const Pixels& pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(pixels.height);
  image.width = static_cast<png_uint_32>(pixels.width);
  image.format = pixels.channels == 1   ? PNG_FORMAT_GRAY
                 : pixels.channels == 3 ? PNG_FORMAT_RGB
                                        : PNG_FORMAT_RGBA;
  png_alloc_size_t size = 0;
  const auto write = [&](void* memory) {
    if (!png_image_write_to_memory(&image, memory, &size, 0, pixels.values.data(), 0, nullptr))
      fail<InvalidArgumentError>("[encode_png] {}", std::string_view(image.message));
  };
  write(nullptr);
  std::vector<std::uint8_t> bytes(size);
  write(bytes.data());
  return bytes;
}

}  // namespace tandem::data
