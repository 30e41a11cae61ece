// Gradients of convolutions by their kernels, which are sums over the pixels of all images.
#include <cstring>

#include "ops/onednn/conv_descs.h"
#include "ops/onednn/parts.h"

namespace tandem::onednn {
namespace {

using BackwardFilter = dnnl::convolution_backward_weights;

// How the work is divided. Each part along the batch costs a pass over the kernel's memory; each
// part along the output channels costs another pass over x. So large kernels are divided along
// their channels and others along the batch. The constants were measured.
struct FilterParts {
  int images = 1;    // along the batch
  int channels = 1;  // along the output channels

  explicit FilterParts(const ConvShape& c) {
    const std::int64_t pixels = c.n * c.oh * c.ow, taps = c.kh * c.kw * c.in / c.groups;
    const std::int64_t bytes = taps * c.out * static_cast<std::int64_t>(sizeof(float));
    const std::int64_t most =
        pixels * taps * c.out >> 19;  // smaller parts cost more than they save
    const std::int64_t pixels_of_part = bytes <= 64 * 1024 ? 128 : 1024;
    images = parts_up_to(
        std::min({c.n, std::int64_t{16}, most, pixels / pixels_of_part, 8 * 1024 * 1024 / bytes}));
    if (c.groups > 1 || taps < 256) return;
    const std::int64_t wanted = std::min<std::int64_t>({8 / images, most / images, c.out / 16});
    for (channels = parts_up_to(wanted); c.out % (16 * channels) != 0 && channels > 1;)
      channels /= 2;
  }
  int count() const { return images * channels; }
};

struct FilterPlan {
  FilterParts parts;
  std::vector<TeamExecutable>
      by_images;                 // for the smaller and the larger number of images per part
  std::size_t packed_bytes = 0;  // of a part's result, in float32
  std::size_t scratchpad_bytes = 0;
  // Copies the sum for a part of the channels to its place in the kernel. Null if the sum has the
  // kernel's layout.
  std::unique_ptr<Executable> reorder;
};

// `packed` is the layout of the result, or "any".
BackwardFilter::primitive_desc describe_filter(ConvShape part, std::int64_t images,
                                               const memory::desc* packed) {
  part.n = images;
  const ConvDescs d(part);
  const memory::desc kernel =
      packed ? *packed
             : memory::desc(d.kernel_any.dims(), memory::data_type::f32, memory::format_tag::any);
  return describe_backward<BackwardFilter>(attributes(), describe_forward(d, false),
                                           dnnl::algorithm::convolution_direct, d.x, kernel, d.y,
                                           d.strides, d.dilations, d.pad_begin, d.pad_end);
}

FilterPlan make_filter_plan(const ConvShape& conv) {
  FilterPlan plan{.parts = FilterParts(conv)};
  ConvShape part = conv;  // one of the parts along the channels
  part.out = conv.out / plan.parts.channels;
  const int threads = std::min(intra_op_threads(), plan.parts.count());
  const std::int64_t fewest = conv.n / plan.parts.images;
  const bool even = conv.n % plan.parts.images == 0;
  memory::desc packed;
  for (const std::int64_t images : {fewest, fewest + 1}) {
    if (images > fewest && even) break;
    plan.by_images.emplace_back(threads, [&] {
      const auto desc = describe_filter(part, images, packed ? &packed : nullptr);
      packed = desc.diff_weights_desc();
      return std::make_unique<Executable>(
          BackwardFilter(desc), desc.scratchpad_desc(),
          std::initializer_list<Executable::Argument>{{DNNL_ARG_SRC, desc.src_desc()},
                                                      {DNNL_ARG_DIFF_DST, desc.diff_dst_desc()},
                                                      {DNNL_ARG_DIFF_WEIGHTS, packed}});
    });
    plan.scratchpad_bytes =
        std::max(plan.scratchpad_bytes, plan.by_images.back().scratchpad_bytes());
  }
  plan.packed_bytes = packed.get_size();
  const memory::desc kernel = kernel_part(conv, part.out);
  if (packed != kernel) plan.reorder = make_reorder(packed, kernel);
  return plan;
}

// Copies the channels [begin, begin + count) of each pixel of dy.
void copy_channels(const std::byte* dy, std::int64_t pixels, std::size_t pixel_bytes,
                   std::size_t begin, std::size_t bytes, std::byte* to) {
  for (std::int64_t i = 0; i < pixels; ++i, dy += pixel_bytes, to += bytes)
    std::memcpy(to, dy + begin, bytes);
}

// Adds the parts of each slice to its first part, and writes the kernel's gradient.
void add_slices(KernelContext& context, const FilterPlan& plan, std::byte* sums,
                const std::byte* others, void* dkernel, std::size_t slice_bytes) {
  const auto [images, channels] = plan.parts;
  const std::size_t packed = plan.packed_bytes;
  for (std::size_t slice = 0; slice < static_cast<std::size_t>(channels); ++slice) {
    std::byte* const sum = sums + slice * packed;
    add_parts(reinterpret_cast<float*>(sum),
              reinterpret_cast<const float*>(others +
                                             slice * static_cast<std::size_t>(images - 1) * packed),
              images - 1, static_cast<std::int64_t>(packed / sizeof(float)));
    if (plan.reorder)
      plan.reorder->run(context, {sum, static_cast<std::byte*>(dkernel) + slice * slice_bytes});
  }
}

}  // namespace

void conv_backward_filter(KernelContext& context, const ConvShape& conv, const void* x,
                          const void* dy, void* dkernel) {
  const Use use;
  const FilterPlan& plan = plan_for<FilterPlan>(
      context, [&] { return conv_key(PrimitiveKind::kConvFilter, conv); },
      [&] { return make_filter_plan(conv); });
  const auto [images, channels] = plan.parts;
  const int threads = plan.by_images.front().threads();
  const std::size_t element = size_of(conv.dtype);
  const auto image_bytes = static_cast<std::size_t>(conv.h * conv.w * conv.in) * element;
  const std::int64_t pixels = conv.oh * conv.ow;
  const std::size_t pixel_bytes = static_cast<std::size_t>(conv.out) * element;
  const std::size_t slice_bytes = pixel_bytes / static_cast<std::size_t>(channels);
  const std::int64_t most_images = (conv.n + images - 1) / images;

  // The results of the parts. Those of the first images are in `sums`, to which the others are
  // added.
  const std::size_t packed = plan.packed_bytes;
  const auto others_of_slice = static_cast<std::size_t>(images - 1) * packed;
  auto* sums = static_cast<std::byte*>(
      plan.reorder ? context.scratch(static_cast<std::size_t>(channels) * packed) : dkernel);
  auto* others = static_cast<std::byte*>(
      context.scratch(static_cast<std::size_t>(channels) * others_of_slice));

  const std::size_t slopes_bytes =
      channels == 1 ? 0 : aligned(static_cast<std::size_t>(most_images * pixels) * slice_bytes);
  const std::size_t thread_bytes = aligned(plan.scratchpad_bytes) + slopes_bytes;
  auto* work =
      static_cast<std::byte*>(context.scratch(static_cast<std::size_t>(threads) * thread_bytes));
  run_parts(threads, plan.parts.count(), [&](int thread, int part) {
    const auto slice = static_cast<std::size_t>(part / images);
    const auto image = static_cast<std::size_t>(part % images);
    const PartRange range = part_of(conv.n, images, part % images);
    std::byte* mine = work + static_cast<std::size_t>(thread) * thread_bytes;
    const auto* slopes = static_cast<const std::byte*>(dy) +
                         static_cast<std::size_t>(range.begin * pixels) * pixel_bytes;
    if (channels > 1) {
      copy_channels(slopes, range.size * pixels, pixel_bytes, slice * slice_bytes, slice_bytes,
                    mine + aligned(plan.scratchpad_bytes));
      slopes = mine + aligned(plan.scratchpad_bytes);
    }
    std::byte* result = image == 0 ? sums + slice * packed
                                   : others + slice * others_of_slice + (image - 1) * packed;
    const auto& executable = plan.by_images[range.size == conv.n / images ? 0 : 1];
    return executable.run(
        thread, mine,
        {static_cast<const std::byte*>(x) + static_cast<std::size_t>(range.begin) * image_bytes,
         slopes, result});
  });

  add_slices(context, plan, sums, others, dkernel, slice_bytes);
}

}  // namespace tandem::onednn
