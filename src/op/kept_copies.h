// Other forms of constants, such as packed weights, which programs share.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "op/op.h"
#include "tandem/tensor.h"

namespace tandem {

// The forms of one kind that some program keeps. An operand with a version (TensorView::version)
// has the memory and the elements that it had when its form was made for as long as a program keeps
// the form. Thread-safe.
template <class Form>
class KeptCopies {
 public:
  static KeptCopies& get() {
    static auto& copies = *new KeptCopies;
    return copies;
  }

  // `make`: called if there is none. Others wait for it meanwhile.
  template <class Make>
  std::shared_ptr<const Tensor> find(const TensorView& operand, const Form& form,
                                     const Make& make) {
    const std::lock_guard lock(mutex_);
    std::erase_if(copies_, [](const Copy& copy) { return copy.elements.expired(); });
    for (const Copy& copy : copies_)
      if (copy.data == operand.data && copy.version == operand.version && copy.form == form)
        if (std::shared_ptr<const Tensor> elements = copy.elements.lock()) return elements;
    auto elements = std::make_shared<const Tensor>(make());
    copies_.push_back({operand.data, operand.version, form, elements});
    return elements;
  }

 private:
  struct Copy {
    const void* data;
    std::uint64_t version;
    Form form;
    std::weak_ptr<const Tensor> elements;
  };

  std::mutex mutex_;
  std::vector<Copy> copies_;
};

}  // namespace tandem
