// The threads of a GPU's block on the CPU: each runs on a stack of its own and gives way where it waits for others, so
// that a kernel body runs as it stands, with its indices, masks, tails and barriers. What one thread of a warp asks of
// all of it happens when the last has asked. Shared memory starts as bytes of ones (NaN), asynchronous copies arrive at
// the wait and not before, and the order of the threads is drawn: code that lacks a barrier gives other numbers in
// another order. Memory is the heap's, so the address sanitizer sees what is read beyond it.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cuda/fragment.h"

#if defined(__SANITIZE_ADDRESS__)
#define MH_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MH_ADDRESS_SANITIZER
#endif
#endif
#ifdef MH_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace host {

struct Grid {
  int x = 1, y = 1, z = 1;
};

inline float from_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
inline uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

// To the nearest, ties to even.
inline uint16_t narrow(float x, mh::kernels::Bf16) {
  const uint32_t bits = bits_of(x);
  if (std::isnan(x)) return 0x7FFF;
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
inline float wide(uint16_t x, mh::kernels::Bf16) { return from_bits(static_cast<uint32_t>(x) << 16); }
inline uint16_t narrow(float x, mh::kernels::Fp16) {
  const auto sign = static_cast<uint16_t>(bits_of(x) >> 16 & 0x8000);
  const double size = std::fabs(static_cast<double>(x));
  if (std::isnan(x)) return 0x7FFF;
  if (size >= 65520) return sign | 0x7C00;
  int exponent = size > 0 ? std::max(std::ilogb(size), -14) : -14;
  auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));  // of 2^(exponent - 10)
  if (steps == 2048) steps = 1024, ++exponent;
  return sign | static_cast<uint16_t>(steps < 1024 ? steps : (exponent + 15) << 10 | (steps - 1024));
}
inline float wide(uint16_t x, mh::kernels::Fp16) {
  const int exponent = x >> 10 & 31, steps = x & 1023;
  const float size =
      exponent == 31 ? (steps != 0 ? NAN : INFINITY)
                     : std::ldexp(static_cast<float>(exponent > 0 ? 1024 + steps : steps), std::max(exponent, 1) - 25);
  return (x & 0x8000) != 0 ? -size : size;
}

// Of functions that leave their stack: they are not part of others, and nothing is done to the stack that they leave.
#define MH_OWN_FRAME __attribute__((noinline, no_sanitize("address")))

// A stack, and where the code that runs on it goes on. Switching does not ask the operating system, as swapcontext does
// twice for the sake of signals, nor the library's longjmp, whose checks take another stack for a mistake. The address
// sanitizer is told of each change, and keeps what it knows of either stack.
class Stack {
 public:
  Stack() = default;  // the one that runs now
  explicit Stack(size_t size) : own_(std::make_unique<char[]>(size)), size_(size) { bottom_ = own_.get(); }

  // It will begin with enter(), which does not return.
  void begin(void (*enter)()) {
#ifdef MH_ADDRESS_SANITIZER
    ASAN_UNPOISON_MEMORY_REGION(own_.get(), size_);  // what is left of functions that never returned
#endif
    getcontext(&start_);
    start_.uc_stack.ss_sp = own_.get(), start_.uc_stack.ss_size = size_, start_.uc_link = nullptr;
    makecontext(&start_, enter, 0);
    starts_ = true;
  }
  // The first thing that `enter` does; `from` is whose code runs it.
  void begun([[maybe_unused]] Stack& from) {
#ifdef MH_ADDRESS_SANITIZER
    __sanitizer_finish_switch_fiber(nullptr, &from.bottom_, &from.size_);
#endif
  }
  // Stops here, on this stack, and goes on with `to`, until something goes on with this one; or ends this one.
  MH_OWN_FRAME void go_on_with(Stack& to, [[maybe_unused]] bool ends = false) {
#ifdef MH_ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(ends ? nullptr : &frames_, to.bottom_, to.size_);
#endif
    if (__builtin_setjmp(place_) == 0) to.jump();
#ifdef MH_ADDRESS_SANITIZER
    __sanitizer_finish_switch_fiber(frames_, nullptr, nullptr);
#endif
  }

 private:
  // Not within go_on_with: the compiler has it that the two halves stand in functions of their own.
  [[noreturn]] MH_OWN_FRAME void jump() {
    if (!std::exchange(starts_, false)) __builtin_longjmp(place_, 1);
    setcontext(&start_);
    std::abort();
  }

  std::unique_ptr<char[]> own_;
  const void* bottom_ = nullptr;
  size_t size_ = 0;
  bool starts_ = false;
  ucontext_t start_;
  void* place_[5];                           // as the compiler wants it
  [[maybe_unused]] void* frames_ = nullptr;  // what the address sanitizer keeps of it
};

class Thread;

// Runs body(thread, shared memory) for each thread of each block.
class Device {
 public:
  // The order of threads is drawn with this seed, but for 0 and 1: upwards and downwards.
  explicit Device(uint32_t seed = 0) : seed_(seed), random_(seed) {}

  using Body = std::function<void(const Thread&, void*)>;
  void run(Grid grid, int threads, size_t shared_bytes, const Body& body);

 private:
  friend class Thread;
  static constexpr size_t kStack = 256 << 10;

  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  struct Meeting {  // of threads that wait for one another
    int arrived = 0;
    uint64_t held = 0;
    const char* what = nullptr;
    void* given[32];
  };
  struct Fiber {
    Stack stack{kStack};
    bool done = false;
    const Meeting* waits_for = nullptr;  // until it is held once more
    uint64_t held = 0;
    std::vector<std::vector<Copy>> groups;  // of copies under way, the oldest first
    std::vector<Copy> group;
  };

  static void enter() {
    Device* device = running();
    device->start();
  }
  static Device*& running() {
    static thread_local Device* device = nullptr;
    return device;
  }
  void start();
  Fiber& current() { return *fibers_[static_cast<size_t>(current_)]; }
  void leave() { current().stack.go_on_with(scheduler_); }
  void fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
    leave();
  }
  // Not inlined: then gcc takes its strings for overflows.
  __attribute__((noinline)) void fail_apart(const char* one, const char* other) {
    fail(std::string("a thread is at ") + one + ", another at " + other);
  }
  // `act` once all `count` threads are here.
  template <class Act>
  void meet(Meeting& at, int count, const char* what, const Act& act) {
    if (at.arrived > 0 && at.what != what) fail_apart(what, at.what);
    at.what = what;
    if (++at.arrived == count) {
      act(at);
      at.arrived = 0, ++at.held, ++progress_;
      return;
    }
    current().waits_for = &at, current().held = at.held;
    leave();
    current().waits_for = nullptr;
  }
  void run_block();

  uint32_t seed_;
  std::mt19937 random_;
  Stack scheduler_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Meeting> warps_;
  Meeting block_;
  Grid grid_, at_;
  int threads_ = 0, current_ = 0;
  uint64_t progress_ = 0;
  const Body* body_ = nullptr;
  void* shared_ = nullptr;
  size_t shared_bytes_ = 0;
  std::string failure_;
};

class Thread {
 public:
  Thread(Device& device, int index) : device_(device), index_(index) {}

  int lane() const { return index_ % 32; }
  int warp() const { return index_ / 32; }
  int index() const { return index_; }
  int threads() const { return device_.threads_; }
  int block_x() const { return device_.at_.x; }
  int block_y() const { return device_.at_.y; }
  int block_z() const { return device_.at_.z; }
  int blocks_x() const { return device_.grid_.x; }

  void barrier() const {
    device_.meet(device_.block_, device_.threads_, "the block's barrier", [](Device::Meeting&) {});
  }
  void warp_barrier() const {
    int nothing = 0;
    together("the warp's barrier", nothing, [](int*(&)[32]) {});
  }
  float shuffle_xor(float x, int bits) const {
    struct Both {
      float x, y;
      int bits;
    } both{x, 0, bits};
    together("an exchange", both, [](Both*(&all)[32]) {
      for (int i = 0; i < 32; ++i) all[i]->y = all[i ^ all[i]->bits]->x;
    });
    return both.y;
  }

  float exp2(float x) const { return std::exp2(x); }
  float log2(float x) const { return std::log2(x); }
  float log1p(float x) const { return std::log1p(x); }

  template <class T>
  uint32_t pack(float low, float high, T type) const {
    return narrow(low, type) | static_cast<uint32_t>(narrow(high, type)) << 16;
  }
  template <class T>
  void unpack(uint32_t x, float& low, float& high, T type) const {
    low = wide(static_cast<uint16_t>(x), type), high = wide(static_cast<uint16_t>(x >> 16), type);
  }
  // To the nearest, ties away from zero.
  float round_tf32(float x) const { return std::isfinite(x) ? from_bits((bits_of(x) + 0x1000) & ~0x1FFFu) : x; }

  template <class T>
  void load_matrices(uint32_t (&to)[4], const T* row) const {
    matrices(to, row, "ldmatrix", [](int r, int c) { return std::pair(r, c); });
  }
  template <class T>
  void load_matrices_transposed(uint32_t (&to)[4], const T* row) const {
    matrices(to, row, "ldmatrix.trans", [](int r, int c) { return std::pair(c, r); });
  }

  // By the layouts of PTX, mma.m16n8k16 of 16-bit and mma.m16n8k8 of tf32 elements.
  template <class T>
  void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], T type) const {
    const auto half = [type](uint32_t x, int i) { return wide(static_cast<uint16_t>(x >> 16 * i), type); };
    product<16>(
        "mma.m16n8k16", c, a, b,
        [half](const uint32_t* x, int lane, double(&to)[16][16]) {
          for (int i = 0; i < 8; ++i)
            to[lane / 4 + i / 2 % 2 * 8][lane % 4 * 2 + i % 2 + i / 4 * 8] = half(x[i / 2], i % 2);
        },
        [half](const uint32_t* x, int lane, double(&to)[16][8]) {
          for (int i = 0; i < 4; ++i) to[lane % 4 * 2 + i % 2 + i / 2 * 8][lane / 4] = half(x[i / 2], i % 2);
        });
  }
  void multiply(float (&c)[4], const float (&a)[4], const float (&b)[2]) const {
    const auto cut = [](float x) { return from_bits(bits_of(x) & ~0x1FFFu); };
    product<8>(
        "mma.m16n8k8", c, a, b,
        [cut](const float* x, int lane, double(&to)[16][8]) {
          for (int i = 0; i < 4; ++i) to[lane / 4 + i % 2 * 8][lane % 4 + i / 2 * 4] = cut(x[i]);
        },
        [cut](const float* x, int lane, double(&to)[8][8]) {
          for (int i = 0; i < 2; ++i) to[lane % 4 + i * 4][lane / 4] = cut(x[i]);
        });
  }

  template <class T, size_t kCount>
  void store(void* to, const T (&x)[kCount]) const {
    if (reinterpret_cast<uintptr_t>(to) % sizeof x != 0) device_.fail("a store of several numbers is not aligned");
    std::memcpy(to, x, sizeof x);
  }

  void store_if(bool condition, void* to, uint32_t x) const {
    if (!condition) return;
    if (reinterpret_cast<uintptr_t>(to) % sizeof x != 0) device_.fail("a store of 4 bytes is not aligned");
    std::memcpy(to, &x, sizeof x);
  }

  template <size_t kCount>
  void read(float (&to)[kCount], const float* from) const {
    if (reinterpret_cast<uintptr_t>(from) % sizeof to != 0) device_.fail("a read of several numbers is not aligned");
    std::memcpy(to, from, sizeof to);
  }

  void copy_16(void* to, const void* from, int bytes) const {
    if (reinterpret_cast<uintptr_t>(to) % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0 || bytes < 0 ||
        bytes > 16)
      device_.fail("an asynchronous copy of 16 bytes is not aligned");
    std::memset(to, 0xFF, 16);
    fiber().group.push_back({to, from, static_cast<size_t>(bytes)});
  }
  void commit_group() const { fiber().groups.push_back(std::exchange(fiber().group, {})); }
  template <int kGroups>
  void wait_group() const {
    auto& groups = fiber().groups;
    while (groups.size() > kGroups) {
      for (const Device::Copy& copy : groups.front()) {
        std::memset(copy.to, 0, 16);
        if (copy.bytes > 0) std::memcpy(copy.to, copy.from, copy.bytes);  // without bytes, from may be null
      }
      groups.erase(groups.begin());
    }
  }

 private:
  Device::Fiber& fiber() const { return *device_.fibers_[static_cast<size_t>(index_)]; }

  // act(all lanes' arguments) once all lanes are here.
  template <class Given, class Act>
  void together(const char* what, Given& given, const Act& act) const {
    Device::Meeting& warp = device_.warps_[static_cast<size_t>(index_ / 32)];
    warp.given[lane()] = &given;
    device_.meet(warp, 32, what, [&](Device::Meeting& at) {
      Given* all[32];
      for (int i = 0; i < 32; ++i) all[i] = static_cast<Given*>(at.given[i]);
      act(all);
    });
  }

  template <class Place>
  void matrices(uint32_t (&to)[4], const void* row, const char* what, const Place& place) const {
    if (reinterpret_cast<uintptr_t>(row) % 16 != 0) device_.fail("a row of ldmatrix is not aligned to 16 bytes");
    struct Both {
      uint32_t* to;
      const void* row;
    } both{to, row};
    together(what, both, [&](Both*(&all)[32]) {
      for (int m = 0; m < 4; ++m)
        for (int l = 0; l < 32; ++l) {
          uint16_t pair[2];
          for (int i = 0; i < 2; ++i) {
            const auto [r, c] = place(l / 4, l % 4 * 2 + i);
            pair[i] = static_cast<const uint16_t*>(all[m * 8 + r]->row)[c];
          }
          all[l]->to[m] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
        }
    });
  }

  // c (16, 8) += a (16, kInner) b. Tensor cores cut the sum off where fp32 ends, towards zero, so that the errors of a
  // long chain of products add up (Fasi et al. 2021, Numerical behavior of NVIDIA tensor cores).
  template <int kInner, class A, class B, class X>
  void product(const char* what, float (&c)[4], const X (&a)[4], const X (&b)[2], const A& place_a,
               const B& place_b) const {
    struct All {
      float* c;
      const X *a, *b;
    } all{c, a, b};
    together(what, all, [&](All*(&lanes)[32]) {
      double left[16][kInner], right[kInner][8];
      for (int l = 0; l < 32; ++l) place_a(lanes[l]->a, l, left), place_b(lanes[l]->b, l, right);
      for (int l = 0; l < 32; ++l)
        for (int i = 0; i < 4; ++i) {
          double sum = lanes[l]->c[i];
          for (int k = 0; k < kInner; ++k) sum += left[l / 4 + i / 2 * 8][k] * right[k][l % 4 * 2 + i % 2];
          const auto nearest = static_cast<float>(sum);
          lanes[l]->c[i] = std::fabs(nearest) > std::fabs(sum) ? std::nextafter(nearest, 0.0F) : nearest;
        }
    });
  }

  Device& device_;
  int index_;
};

inline void Device::start() {
  current().stack.begun(scheduler_);
  (*body_)(Thread(*this, current_), shared_);
  // What nobody waits for may still arrive where others write.
  auto under_way = current().groups;
  under_way.push_back(current().group);
  for (const auto& group : under_way)
    if (!group.empty()) fail("a thread ends while its copies are under way");
  current().done = true, ++progress_;
  current().stack.go_on_with(scheduler_, true);
}

inline void Device::run_block() {
  std::memset(shared_, 0xFF, shared_bytes_);
  warps_.assign(static_cast<size_t>(threads_ / 32), {});
  block_ = {};
  for (auto& fiber : fibers_) {
    fiber->done = false, fiber->waits_for = nullptr, fiber->groups.clear(), fiber->group.clear();
    fiber->stack.begin(&Device::enter);
  }
  std::vector<int> order(static_cast<size_t>(threads_));
  for (int i = 0; i < threads_; ++i) order[static_cast<size_t>(i)] = seed_ == 1 ? threads_ - 1 - i : i;
  for (;;) {
    if (seed_ > 1) std::shuffle(order.begin(), order.end(), random_);
    const uint64_t before = progress_;
    bool waits = false;
    for (int i : order) {
      Fiber& fiber = *fibers_[static_cast<size_t>(i)];
      if (fiber.done) continue;
      waits = true;
      if (fiber.waits_for != nullptr && fiber.waits_for->held == fiber.held) continue;
      current_ = i;
      scheduler_.go_on_with(fiber.stack);
      if (!failure_.empty()) throw std::runtime_error(failure_);
    }
    if (!waits) return;
    if (progress_ == before) throw std::runtime_error("threads wait for others that do not come");
  }
}

inline void Device::run(Grid grid, int threads, size_t shared_bytes, const Body& body) {
  grid_ = grid, threads_ = threads, body_ = &body, shared_bytes_ = shared_bytes;
  running() = this;
  if (threads % 32 != 0) throw std::runtime_error("a block of whole warps is expected");
  while (fibers_.size() < static_cast<size_t>(threads)) fibers_.push_back(std::make_unique<Fiber>());
  fibers_.resize(static_cast<size_t>(threads));
  // Of exactly this size, so that what lies behind it is not the block's.
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(16, (shared_bytes + 15) / 16 * 16),
                                                           &std::free);
  shared_ = memory.get();
  for (at_.z = 0; at_.z < grid.z; ++at_.z)
    for (at_.y = 0; at_.y < grid.y; ++at_.y)
      for (at_.x = 0; at_.x < grid.x; ++at_.x) run_block();
}

}  // namespace host
