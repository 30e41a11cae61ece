// TANDEM_FIELDS lists the members of an attribute struct. The runtime compares and stores
// attributes by that list (op/attributes.h).
#pragma once

// In a struct: defines fields(f), which calls f("member", member) for each of up to 27 members.
// Serialised graphs contain these names, so renaming a member makes them unreadable.
#define TANDEM_FIELDS(...)                                     \
  template <class F>                                           \
  void fields([[maybe_unused]] F&& f) const {                  \
    __VA_OPT__(TANDEM_SCAN_27(TANDEM_EACH_FIELD(__VA_ARGS__))) \
  }

// A macro does not expand within itself, so the call for the remaining members is deferred to the
// next scan.
#define TANDEM_EACH_FIELD(member, ...) \
  f(#member, member);                  \
  __VA_OPT__(TANDEM_NEXT_FIELD TANDEM_NO_ARGUMENTS(__VA_ARGS__))
#define TANDEM_NO_ARGUMENTS ()
#define TANDEM_NEXT_FIELD() TANDEM_EACH_FIELD
#define TANDEM_SCAN_27(...) TANDEM_SCAN_9(TANDEM_SCAN_9(TANDEM_SCAN_9(__VA_ARGS__)))
#define TANDEM_SCAN_9(...) TANDEM_SCAN_3(TANDEM_SCAN_3(TANDEM_SCAN_3(__VA_ARGS__)))
#define TANDEM_SCAN_3(...) TANDEM_SCAN_1(TANDEM_SCAN_1(TANDEM_SCAN_1(__VA_ARGS__)))
#define TANDEM_SCAN_1(...) __VA_ARGS__
