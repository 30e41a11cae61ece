// Trains on a folder of images: a sub-folder for each class, JPEG and PNG, flipped and cropped at random.
//   20_image_folder FOLDER [EPOCHS]
// A folder that does not exist is first made of CIFAR-10's binary files in the directory TANDEM_DATA/cifar10.
#include <tandem/tandem.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
namespace td = tandem;
namespace fs = std::filesystem;

// Writes 2,000 images as FOLDER/CLASS/NUMBER, every second as JPEG.
void write_cifar10(const fs::path& folder) {
  const char* data = std::getenv("TANDEM_DATA");
  const auto images =
      td::datasets::read_cifar10(std::string(data ? data : ".") + "/cifar10/data_batch_1.bin").take(2000);
  const char* classes[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                           "dog",      "frog",       "horse", "ship", "truck"};
  for (std::int64_t i = 0; i < images.size(); ++i) {
    const fs::path path = folder / classes[images.labels[i].item<std::int64_t>()];
    fs::create_directories(path);
    const bool jpeg = i % 2 == 1;
    const td::Tensor bytes =
        jpeg ? td::image::encode_jpeg(images.images[i]) : td::image::encode_png(images.images[i]);
    std::ofstream(path / (std::to_string(i) + (jpeg ? ".jpg" : ".png")), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data<std::uint8_t>()), bytes.bytes());
  }
}

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: 20_image_folder FOLDER [EPOCHS]\n";
    return 2;
  }
  td::random::set_seed(0);
  if (!fs::exists(argv[1])) write_cifar10(argv[1]);

  // The same seed: no image is in both parts.
  const auto part = [&](const std::string& subset) {
    return td::utils::image_dataset_from_directory(argv[1], {.batch_size = 64,
                                                             .image_size = {32, 32},
                                                             .seed = 1,
                                                             .validation_split = 0.2,
                                                             .subset = subset});
  };
  const auto training = part("training"), validation = part("validation");
  std::cout << training.file_paths.size() << " images for training, " << validation.file_paths.size()
            << " for validation, " << training.class_names.size() << " classes\n";

  using namespace td::layers;
  td::Sequential model({RandomFlip("horizontal"), RandomTranslation(0.1, 0.1),
                        Rescaling(1.0 / 127.5, -1.0, {.input_shape = {32, 32, 3}}),
                        Conv2D(32, 3, {.padding = "same", .activation = "relu"}), MaxPooling2D(),
                        Conv2D(64, 3, {.padding = "same", .activation = "relu"}), MaxPooling2D(),
                        GlobalAveragePooling2D(),
                        Dense(static_cast<std::int64_t>(training.class_names.size()))});
  model.compile({.optimizer = td::optimizers::Adam({.learning_rate = 3e-3}),
                 .loss = td::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  model.fit(training, {.epochs = argc > 2 ? std::atoll(argv[2]) : 10, .validation_data = validation, .verbose = 2});
  // Not of the history, which is empty after 0 epochs.
  std::cout << "accuracy " << model.evaluate(validation, {.verbose = 0}).at("accuracy") << '\n';
}
