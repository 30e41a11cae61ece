// Files of images, and folders of them.
#include "tandem/image_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "core/module.h"
#include "data/image_bytes.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::image_files_test {
namespace {

using namespace testing;
using utils::image_dataset_from_directory;

constexpr const char* kNeeds = "images";
bool can_decode() { return can_load(kImagesModule); }

Tensor pixels(const Shape& shape, std::uint32_t seed = 1) {
  return cast(random_tensor(shape, seed, 0.0, 255.99), uint8);
}
std::string contents(const Tensor& bytes) {
  const auto values = bytes.to_vector<std::uint8_t>();
  return {values.begin(), values.end()};
}
Tensor bytes_of(const std::string& text) {
  return constant(std::vector<int>(text.begin(), text.end()), {.dtype = int32}).to(uint8);
}
Tensor bytes_of(const std::vector<int>& values) { return constant(values).to(uint8); }

// A smooth image, which JPEG keeps well.
Tensor smooth(std::int64_t height, std::int64_t width, std::int64_t channels) {
  const Tensor y = reshape(range(static_cast<double>(height)), {height, 1, 1});
  const Tensor x = reshape(range(static_cast<double>(width)), {1, width, 1});
  const Tensor c = reshape(range(static_cast<double>(channels)), {1, 1, channels});
  return cast(y * 3.0 + x * 2.0 + c * 40.0, uint8);
}

TEST(ImageFiles, PngKeepsPixels) {
  TANDEM_REQUIRE(can_decode(), kNeeds);
  for (const std::int64_t channels : {1, 3, 4})
    for (const auto& [height, width] : {std::pair{1, 1}, {5, 7}, {64, 33}}) {
      const Tensor image = pixels({height, width, channels});
      const Tensor read = image::decode_image(image::encode_png(image));
      EXPECT_EQ(read.shape(), image.shape());
      EXPECT_EQ(values_of(read), values_of(image));
    }
}

TEST(ImageFiles, JpegIsCloseToThePixels) {
  TANDEM_REQUIRE(can_decode(), kNeeds);
  for (const std::int64_t channels : {1, 3}) {
    const Tensor image = smooth(40, 33, channels);
    const Tensor read = image::decode_image(image::encode_jpeg(image));
    EXPECT_EQ(read.shape(), image.shape());
    const std::vector<double> a = values_of(read), b = values_of(image);
    double error = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
      error += std::abs(a[i] - b[i]) / static_cast<double>(a.size());
    EXPECT_LT(error, 2.0);
  }
  EXPECT_LT(image::encode_jpeg(smooth(40, 33, 3), 20).size(),
            image::encode_jpeg(smooth(40, 33, 3)).size());
}

TEST(ImageFiles, ConvertsChannels) {
  TANDEM_REQUIRE(can_decode(), kNeeds);
  const Tensor rgb = constant({{{200, 100, 50}}}, uint8),
               rgba = constant({{{200, 100, 50, 9}}}, uint8);
  const Tensor grey = constant({{{77}}}, uint8);
  const auto as = [](const Tensor& image, std::int64_t channels) {
    return values_of(image::decode_image(image::encode_png(image), {.channels = channels}));
  };
  using Values = std::vector<double>;
  EXPECT_EQ(as(rgb, 4), (Values{200, 100, 50, 255}));
  EXPECT_EQ(as(rgba, 3), (Values{200, 100, 50}));  // alpha is dropped, not blended
  EXPECT_EQ(as(rgba, 0), (Values{200, 100, 50, 9}));
  EXPECT_EQ(as(grey, 3), (Values{77, 77, 77}));
  EXPECT_EQ(as(grey, 4), (Values{77, 77, 77, 255}));
  EXPECT_NEAR(as(rgb, 1)[0], 0.299 * 200 + 0.587 * 100 + 0.114 * 50, 1.0);
  const Tensor jpeg = image::encode_jpeg(full({8, 8, 3}, 90.0, uint8));
  EXPECT_EQ(values_of(image::decode_image(jpeg, {.channels = 4})(0, 0)), (Values{90, 90, 90, 255}));
  EXPECT_EQ(image::decode_image(jpeg, {.channels = 1}).shape(), (Shape{8, 8, 1}));
}

TEST(ImageFiles, ReadsThePixelsThatPillowReads) {
  TANDEM_REQUIRE(can_decode(), kNeeds);
  for (const ImageBytes& each : kImages) {
    SCOPED_TRACE(each.name);
    const std::vector<double> read =
        values_of(image::decode_image(bytes_of(each.bytes), {.channels = each.channels}));
    ASSERT_EQ(read.size(), each.pixels.size());
    for (std::size_t i = 0; i < read.size(); ++i) EXPECT_NEAR(read[i], each.pixels[i], 1.0) << i;
  }
}

TEST(ImageFiles, ErrorsNameTheFileThePlaceAndTheReason) {
  TANDEM_REQUIRE(can_decode(), kNeeds);
  const TemporaryDirectory directory;
  const std::string path = (directory / "a.jpg").string();
  const auto refused = [&]<class E>(const std::string& bytes, const std::string& message, E) {
    write_file(path, bytes);
    expect_error<E>([&] { static_cast<void>(image::read_image(path)); },
                    "[read_image] " + path + message);
  };
  const DataLossError broken("");
  const InvalidArgumentError invalid("");
  const std::string jpeg = contents(image::encode_jpeg(pixels({64, 64, 3})));
  const std::string png = contents(image::encode_png(pixels({64, 64, 3})));
  refused(jpeg.substr(0, jpeg.size() / 2), ", row ", broken);
  refused(jpeg.substr(0, jpeg.size() / 2), "", broken);
  refused(png.substr(0, png.size() / 2), ", row ", broken);
  refused(png.substr(0, 20), ": the PNG data is broken: the file ends early", broken);
  refused(jpeg.substr(0, 10), ": the JPEG data is broken: ", broken);
  refused("GIF89a", ": expected a JPEG or PNG image, got a GIF image", invalid);
  refused("", ": expected a JPEG or PNG image, got an empty file", invalid);
  refused("text", ": expected a JPEG or PNG image, got other bytes", invalid);
  write_file(path, png);
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(image::read_image(path, {.max_pixels = 4095})); },
      path + ": expected at most 4095 pixels (max_pixels), got 64 x 64");
  EXPECT_EQ(image::read_image(path, {.max_pixels = 4096}).shape(), (Shape{64, 64, 3}));
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(image::read_image(path, {.channels = 2})); },
      "[read_image] expected 0, 1, 3 or 4 channels, got 2");
  expect_error<NotFoundError>([&] { static_cast<void>(image::read_image(path + "x")); },
                              "no such file");
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(image::decode_image(ones({3}))); },
      "[decode_image] expected bytes, uint8 [size], got float32 (3,)");
  expect_error<DTypeError>(
      [&] {
        static_cast<void>(image::encode_png(ones({3, 3, 3})));
      },
      "[encode_png] expected pixels of dtype uint8, got float32");
  expect_error<ShapeError>(
      [&] {
        static_cast<void>(image::encode_jpeg(pixels({3, 3, 4})));
      },
      "[encode_jpeg] expected pixels [height, width, channels] with 1 or 3 channels");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(image::encode_jpeg(pixels({3, 3, 3}), 0));
      },
      "[encode_jpeg] expected a quality of [1, 100], got 0");
}

TEST(ImageFiles, AnnouncedSizesCostNoMemory) {
  TANDEM_REQUIRE(can_decode(), kNeeds);
  std::string png = contents(image::encode_png(pixels({1, 1, 3})));
  // Width and height in IHDR; its checksum is then wrong, so that the size or the checksum refuses
  // it.
  for (const std::size_t at : {16u, 20u}) png.replace(at, 4, "\x7f\xff\xff\xff", 4);
  EXPECT_ANY_THROW(static_cast<void>(image::decode_image(bytes_of(png))));
  std::string jpeg = contents(image::encode_jpeg(pixels({8, 8, 3})));
  const std::size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, jpeg.npos);
  jpeg.replace(frame + 5, 4, "\xff\xdc\xff\xdc", 4);  // 65500 x 65500
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(image::decode_image(bytes_of(jpeg))); },
      "expected at most 178956970 pixels (max_pixels), got 65500 x 65500");
}

// A folder with 5 images of "cat", 3 of "dog" (one in a sub-folder) and other files. The first
// pixel is the number of the image.
class Folder {
 public:
  Folder() {
    for (int i = 0; i < 5; ++i) add("cat/" + std::to_string(i) + (i % 2 ? ".png" : ".PNG"), i);
    add("dog/a.png", 10);
    add("dog/puppies/b.png", 11);
    add("dog/z.jpeg", 12);
    write_file(directory_ / "cat/notes.txt", "no image");
    write_file(directory_ / "readme.md", "no class");
  }
  std::string path() const { return directory_.path().string(); }
  void add(const std::string& name, int number) const {
    std::filesystem::create_directories((directory_ / name).parent_path());
    const Tensor image = full({4, 6, 3}, number, uint8);
    const bool jpeg = name.ends_with("jpeg");
    write_file(directory_ / name,
               contents(jpeg ? image::encode_jpeg(image, 100) : image::encode_png(image)));
  }
  const TemporaryDirectory& directory() const { return directory_; }

 private:
  TemporaryDirectory directory_;
};

struct Seen {
  std::vector<double> numbers, labels;
};
Seen seen_in(const data::Dataset& dataset, data::IterateOptions from = {}) {
  Seen seen;
  for (const data::Example& batch : dataset.iterate(from)) {
    const std::vector<double> first = values_of(batch[0](Slice{}, 0, 0, 0));
    seen.numbers.insert(seen.numbers.end(), first.begin(), first.end());
    const std::vector<double> labels = values_of(batch[1]);
    seen.labels.insert(seen.labels.end(), labels.begin(), labels.end());
  }
  return seen;
}
using Values = std::vector<double>;

TEST(ImageDataset, ReadsTheImagesOfSubFoldersWithLabels) {
  TANDEM_REQUIRE(can_decode(), kNeeds);
  const Folder folder;
  const auto dataset = image_dataset_from_directory(
      folder.path(), {.batch_size = 3, .image_size = {4, 6}, .shuffle = false});
  EXPECT_EQ(dataset.class_names, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(dataset.file_paths.size(), 8u);
  EXPECT_EQ(dataset.size(), 3);
  const Seen seen = seen_in(dataset);
  EXPECT_EQ(seen.numbers, (Values{0, 1, 2, 3, 4, 10, 11, 12}));
  EXPECT_EQ(seen.labels, (Values{0, 0, 0, 0, 0, 1, 1, 1}));
  for (const auto& [images, labels] : dataset) {
    EXPECT_EQ(images.dtype(), float32);
    EXPECT_EQ(images.shape(), (Shape{images.dim(0), 4, 6, 3}));
    EXPECT_EQ(labels.dtype(), int32);
  }
}

TEST(ImageDataset, HasKerasOptions) {
  TANDEM_REQUIRE(can_decode(), kNeeds);
  const Folder folder;
  const auto first = [&](const utils::ImageDatasetOptions& options) {
    return image_dataset_from_directory(folder.path(), options).iterate().next().value();
  };
  data::Example batch = first({.label_mode = "categorical", .shuffle = false});
  EXPECT_EQ(batch[0].shape(), (Shape{8, 256, 256, 3}));
  expect_tensor(batch[1], float32, {8, 2}, {1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 0, 1, 0, 1});
  batch = first({.label_mode = "binary",
                 .class_names = {"dog", "cat"},
                 .color_mode = "grayscale",
                 .image_size = {2, 2},
                 .shuffle = false,
                 .interpolation = "nearest"});
  EXPECT_EQ(batch[0].shape(), (Shape{8, 2, 2, 1}));
  expect_tensor(batch[1], float32, {8, 1}, {0, 0, 0, 1, 1, 1, 1, 1});
  EXPECT_EQ(
      first({.color_mode = "rgba", .image_size = {2, 3}, .crop_to_aspect_ratio = true})[0].shape(),
      (Shape{8, 2, 3, 4}));
  EXPECT_EQ(first({.labels = false}).size(), 1u);
  EXPECT_EQ(first({.batch_size = std::nullopt, .image_size = {3, 3}})[0].shape(), (Shape{3, 3, 3}));
}

TEST(ImageDataset, ShufflesInEachEpochAndSplits) {
  TANDEM_REQUIRE(can_decode(), kNeeds);
  const Folder folder;
  const auto of = [&](const std::string& subset) {
    return image_dataset_from_directory(
        folder.path(),
        {.image_size = {4, 6}, .seed = 7, .validation_split = 0.4, .subset = subset});
  };
  const auto training = of("training"), validation = of("validation");
  const Seen a = seen_in(training), b = seen_in(training, {.epoch = 1}), v = seen_in(validation);
  EXPECT_EQ(a.numbers.size(), 5u);
  EXPECT_EQ(v.numbers.size(), 3u);
  EXPECT_NE(a.numbers, b.numbers);
  std::set<double> all(a.numbers.begin(), a.numbers.end());
  EXPECT_EQ(all, std::set<double>(b.numbers.begin(), b.numbers.end()));
  all.insert(v.numbers.begin(), v.numbers.end());
  EXPECT_EQ(all.size(), 8u);
  EXPECT_EQ(seen_in(of("training")).numbers, a.numbers);
}

TEST(ImageDataset, ResumesAndSharesItsImagesWithoutReadingOthers) {
  TANDEM_REQUIRE(can_decode(), kNeeds);
  const Folder folder;
  const auto single = image_dataset_from_directory(
      folder.path(), {.batch_size = std::nullopt, .image_size = {4, 6}, .seed = 3});
  const Seen all = seen_in(single.batch(1));
  EXPECT_EQ(seen_in(single.batch(1), {.skip = 5}).numbers,
            Values(all.numbers.begin() + 5, all.numbers.end()));
  // An image of another shard may be missing.
  const auto shard = [&](std::int64_t index) {
    return image_dataset_from_directory(folder.path(), {.batch_size = 2,
                                                        .image_size = {4, 6},
                                                        .shuffle = false,
                                                        .num_shards = 2,
                                                        .shard_index = index});
  };
  const auto first = shard(0), second = shard(1);
  std::filesystem::remove(folder.directory() / "cat/1.png");
  EXPECT_EQ(seen_in(first).numbers, (Values{0, 2, 4, 11}));
  expect_error<NotFoundError>([&] { seen_in(second); }, "cat/1.png: no such file");
  expect_error<InvalidArgumentError>([&] { shard(2); }, "shard");
}

TEST(ImageDataset, TrainsAModel) {
  TANDEM_REQUIRE(can_decode(), kNeeds);
  const Folder folder;
  const auto batches = image_dataset_from_directory(
      folder.path(), {.batch_size = 4, .image_size = {4, 6}, .seed = 1});
  Sequential model({layers::Rescaling(1.0 / 12), layers::Flatten(), layers::Dense(2)});
  model.compile(
      {.optimizer = "adam", .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
  const History history = model.fit(batches, {.epochs = 30, .verbose = 0});
  EXPECT_LT(history.at("loss").back(), 0.7 * history.at("loss").front());
}

TEST(ImageDataset, ErrorsSayWhatIsWrong) {
  TANDEM_REQUIRE(can_decode(), kNeeds);
  const Folder folder;
  const auto refused = [&](const utils::ImageDatasetOptions& options, const std::string& message) {
    expect_error<InvalidArgumentError>(
        [&] { image_dataset_from_directory(folder.path(), options); },
        "[image_dataset_from_directory] " + message);
  };
  refused({.label_mode = "none"},
          "expected label_mode 'int', 'categorical' or 'binary', got 'none'");
  refused({.class_names = {"cat"}}, "expected class_names that are the sub-folders of '" +
                                        folder.path() + "', cat, dog; got cat");
  refused({.color_mode = "bgr"}, "expected color_mode 'rgb'");
  refused({.image_size = {0, 2}}, "expected an image_size of at least 1 x 1, got 0 x 2");
  refused({.validation_split = 0.5}, "expected a subset with validation_split");
  refused({.subset = "training"}, "expected a subset with validation_split");
  refused({.validation_split = 1.5, .subset = "training"},
          "expected a validation_split of [0, 1), got 1.5");
  refused({.validation_split = 0.5, .subset = "test"},
          "expected the subset 'training' or 'validation'");
  refused({.validation_split = 0.5, .subset = "training"}, "expected a seed with validation_split");
  refused({.interpolation = "cubic"}, "expected interpolation 'bilinear' or 'nearest'");
  refused({.crop_to_aspect_ratio = true, .pad_to_aspect_ratio = true}, "expected one of crop_to");
  expect_error<NotFoundError>([&] { image_dataset_from_directory(folder.path() + "x"); },
                              "x: expected a directory, got nothing");
  write_file(folder.directory() / "cat/6.gif", "GIF89a");
  refused({}, (folder.directory() / "cat/6.gif").string() + ": expected JPEG and PNG images");
  const TemporaryDirectory empty;
  expect_error<InvalidArgumentError>([&] { image_dataset_from_directory(empty.path().string()); },
                                     "expected images (.jpg, .jpeg, .png) in the sub-folders");
}

TEST(ImageDataset, ABrokenFileNamesItself) {
  TANDEM_REQUIRE(can_decode(), kNeeds);
  const Folder folder;
  write_file(folder.directory() / "cat/2.PNG",
             read_file(folder.directory() / "cat/1.png").substr(0, 50));
  const auto dataset = image_dataset_from_directory(folder.path(), {.image_size = {4, 6}});
  expect_error<DataLossError>([&] { seen_in(dataset); }, "cat/2.PNG");
}

TEST(ImageFolder, IsIndexedAsTorchvisions) {
  TANDEM_REQUIRE(can_decode(), kNeeds);
  const Folder folder;
  const datasets::ImageFolder images(folder.path());
  EXPECT_EQ(images.classes, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(images.class_to_idx.at("dog"), 1);
  EXPECT_EQ(images.size(), 8);
  expect_tensor(images[6][0](0, 0), uint8, {3}, {11, 11, 11});
  expect_tensor(images[6][1], int64, Shape::scalar(), {1});
  expect_error<OutOfRangeError>([&] { images[8]; },
                                "[ImageFolder] expected an index of [0, 8), got 8");
  const datasets::ImageFolder changed(
      folder.path(), {.transform = [](const Tensor& x) { return cast(x, float32) / 255.0; },
                      .target_transform = [](std::int64_t label) { return label + 5; }});
  Values labels;
  for (const data::Example& batch :
       data::DataLoader(changed, {.batch_size = 3, .num_workers = 2})) {
    EXPECT_EQ(batch[0].dtype(), float32);
    for (const double label : values_of(batch[1])) labels.push_back(label);
  }
  EXPECT_EQ(labels, (Values{5, 5, 5, 5, 5, 6, 6, 6}));
  std::filesystem::create_directories(folder.directory() / "bird");
  expect_error<NotFoundError>([&] { datasets::ImageFolder(folder.path()); },
                              "[ImageFolder] Found no valid file for the class bird.");
  EXPECT_EQ(datasets::ImageFolder(folder.path(), {.allow_empty = true}).classes.size(), 3u);
  const TemporaryDirectory empty;
  expect_error<NotFoundError>([&] { datasets::ImageFolder(empty.path().string()); },
                              "[ImageFolder] Couldn't find any class folder in");
}

}  // namespace
}  // namespace tandem::image_files_test
