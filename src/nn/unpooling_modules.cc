// Max pooling with positions, and its reverse.
#include "tandem/unpooling_modules.h"

#include "nn/windows.h"

namespace tandem::nn {
namespace {

std::vector<std::int64_t> list_of(Pair p) { return {p.height, p.width}; }
std::vector<std::int64_t> list_of(const Triple& t) { return {t.depth, t.height, t.width}; }

template <class Size, class Options>
Windows windows_of(const Size& kernel, const Options& options) {
  return {.size = list_of(kernel),
          .stride = list_of(options.stride.value_or(kernel)),
          .padding = list_of(options.padding),
          .dilation = list_of(Size(1))};
}

template <class Size, class Options>
Windows pooling_windows(const Size& kernel, const Options& options) {
  Windows windows = windows_of(kernel, options);
  windows.dilation = list_of(options.dilation);
  windows.ceil = options.ceil_mode;
  return windows;
}

}  // namespace

namespace functional {

ValuesAndIndices max_pool1d_with_indices(const Tensor& x, std::int64_t kernel_size,
                                         const MaxPool1dArguments& options) {
  return max_pooled_with_indices("max_pool1d_with_indices", x,
                                 {.size = {kernel_size},
                                  .stride = {options.stride.value_or(kernel_size)},
                                  .padding = {options.padding},
                                  .dilation = {options.dilation},
                                  .ceil = options.ceil_mode});
}
ValuesAndIndices max_pool2d_with_indices(const Tensor& x, Pair kernel_size,
                                         const MaxPool2dArguments& options) {
  return max_pooled_with_indices("max_pool2d_with_indices", x,
                                 pooling_windows(kernel_size, options));
}
ValuesAndIndices max_pool3d_with_indices(const Tensor& x, Triple kernel_size,
                                         const MaxPool3dArguments& options) {
  return max_pooled_with_indices("max_pool3d_with_indices", x,
                                 pooling_windows(kernel_size, options));
}

Tensor max_unpool1d(const Tensor& x, const Tensor& indices, std::int64_t kernel_size,
                    const MaxUnpool1dArguments& options,
                    const std::vector<std::int64_t>& output_size) {
  return max_unpooled("max_unpool1d", x, indices,
                      {.size = {kernel_size},
                       .stride = {options.stride.value_or(kernel_size)},
                       .padding = {options.padding},
                       .dilation = {1}},
                      output_size);
}
Tensor max_unpool2d(const Tensor& x, const Tensor& indices, Pair kernel_size,
                    const MaxUnpool2dArguments& options,
                    const std::vector<std::int64_t>& output_size) {
  return max_unpooled("max_unpool2d", x, indices, windows_of(kernel_size, options), output_size);
}
Tensor max_unpool3d(const Tensor& x, const Tensor& indices, Triple kernel_size,
                    const MaxUnpool3dArguments& options,
                    const std::vector<std::int64_t>& output_size) {
  return max_unpooled("max_unpool3d", x, indices, windows_of(kernel_size, options), output_size);
}

}  // namespace functional

MaxUnpool1d::MaxUnpool1d(std::int64_t kernel_size, const MaxUnpool1dArguments& options)
    : ModuleHolder(std::make_shared<MaxUnpoolImpl>(
          [kernel_size, options](const Tensor& x, const Tensor& indices,
                                 const std::vector<std::int64_t>& output_size) {
            return functional::max_unpool1d(x, indices, kernel_size, options, output_size);
          })) {}
MaxUnpool2d::MaxUnpool2d(Pair kernel_size, const MaxUnpool2dArguments& options)
    : ModuleHolder(std::make_shared<MaxUnpoolImpl>(
          [kernel_size, options](const Tensor& x, const Tensor& indices,
                                 const std::vector<std::int64_t>& output_size) {
            return functional::max_unpool2d(x, indices, kernel_size, options, output_size);
          })) {}
MaxUnpool3d::MaxUnpool3d(Triple kernel_size, const MaxUnpool3dArguments& options)
    : ModuleHolder(std::make_shared<MaxUnpoolImpl>(
          [kernel_size, options](const Tensor& x, const Tensor& indices,
                                 const std::vector<std::int64_t>& output_size) {
            return functional::max_unpool3d(x, indices, kernel_size, options, output_size);
          })) {}

}  // namespace tandem::nn
