// An emulator of GPU threads on the CPU, for tests of kernel bodies. The threads of a block are fibers, each with its
// own stack, that yield at barriers, so kernel bodies run unchanged, with their indices, masks, tails and barriers. A
// warp-wide operation takes effect when the last lane has reached it. To expose missing barriers, the threads can run
// in descending or in random order, shared memory is initialised with bytes 0xFF (NaN), and an asynchronous copy
// completes at wait_group() and not earlier. Shared memory is on the heap, so the address sanitizer detects accesses
// out of bounds.
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

#include "ceil_div.h"
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

// Returns the fp32 number with the given bits.
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

// Returns the bits of x rounded to a 16-bit type, to nearest, ties to even; 0x7FFF for NaN. widen() converts such bits
// to fp32.
inline uint16_t narrow(float x, mh::kernels::Bf16) {
  const uint32_t bits = bits_of(x);
  if (std::isnan(x)) return 0x7FFF;
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
inline float widen(uint16_t x, mh::kernels::Bf16) { return from_bits(static_cast<uint32_t>(x) << 16); }
inline uint16_t narrow(float x, mh::kernels::Fp16) {
  const auto sign = static_cast<uint16_t>(bits_of(x) >> 16 & 0x8000);
  const double magnitude = std::fabs(static_cast<double>(x));
  if (std::isnan(x)) return 0x7FFF;
  if (magnitude >= 65520) return sign | 0x7C00;
  int exponent = magnitude > 0 ? std::max(std::ilogb(magnitude), -14) : -14;
  // The magnitude in units of 2^(exponent - 10).
  auto significand = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  if (significand == 2048) significand = 1024, ++exponent;
  return sign | static_cast<uint16_t>(significand < 1024 ? significand : (exponent + 15) << 10 | (significand - 1024));
}
inline float widen(uint16_t x, mh::kernels::Fp16) {
  const int exponent = x >> 10 & 31, significand = x & 1023;
  const float magnitude =
      exponent == 31
          ? (significand != 0 ? NAN : INFINITY)
          : std::ldexp(static_cast<float>(exponent > 0 ? 1024 + significand : significand), std::max(exponent, 1) - 25);
  return (x & 0x8000) != 0 ? -magnitude : magnitude;
}

// The attributes of functions that switch stacks: never inlined, and not instrumented by the address sanitizer.
#define MH_SWITCHES_STACK __attribute__((noinline, no_sanitize("address")))

// The stack of a fiber and the point where the fiber resumes. A switch between stacks uses __builtin_setjmp and
// __builtin_longjmp: swapcontext would make two system calls, for the signal mask, and the longjmp of the C library
// rejects a jump to another stack. The address sanitizer is notified of each switch.
class Stack {
 public:
  Stack() = default;  // represents the stack of the thread that runs the emulator
  explicit Stack(size_t size) : memory_(std::make_unique<char[]>(size)), size_(size) { bottom_ = memory_.get(); }

  // Prepares the stack so that the first switch to it calls enter(), which must not return.
  void prepare(void (*enter)()) {
#ifdef MH_ADDRESS_SANITIZER
    ASAN_UNPOISON_MEMORY_REGION(memory_.get(), size_);  // removes the poison of frames that never returned
#endif
    getcontext(&start_);
    start_.uc_stack.ss_sp = memory_.get(), start_.uc_stack.ss_size = size_, start_.uc_link = nullptr;
    makecontext(&start_, enter, 0);
    is_new_ = true;
  }
  // Completes the first switch to this stack, a switch from the stack `from`. enter() must call this function first.
  void complete_first_switch([[maybe_unused]] Stack& from) {
#ifdef MH_ADDRESS_SANITIZER
    __sanitizer_finish_switch_fiber(nullptr, &from.bottom_, &from.size_);
#endif
  }
  // Suspends this stack and resumes `to`; returns when another stack switches back to this one. is_final: this stack
  // will never be resumed.
  MH_SWITCHES_STACK void switch_to(Stack& to, [[maybe_unused]] bool is_final = false) {
#ifdef MH_ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(is_final ? nullptr : &fake_stack_, to.bottom_, to.size_);
#endif
    if (__builtin_setjmp(resume_point_) == 0) to.resume();
#ifdef MH_ADDRESS_SANITIZER
    __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
  }

 private:
  // Jumps to the resume point of this stack, or to enter() at first. Separate from switch_to(), since __builtin_setjmp
  // and __builtin_longjmp must not be in the same function.
  [[noreturn]] MH_SWITCHES_STACK void resume() {
    if (!std::exchange(is_new_, false)) __builtin_longjmp(resume_point_, 1);
    setcontext(&start_);
    std::abort();
  }

  std::unique_ptr<char[]> memory_;
  const void* bottom_ = nullptr;
  size_t size_ = 0;
  bool is_new_ = false;
  ucontext_t start_;
  void* resume_point_[5];                        // buffer of __builtin_setjmp
  [[maybe_unused]] void* fake_stack_ = nullptr;  // state of the address sanitizer
};

class Thread;

// Runs kernels on the CPU, one block after another, and reports violations of the rules of the GPU.
class EmulatedGpu {
 public:
  // The threads of a block run in ascending order if `seed` is 0, in descending order if it is 1, otherwise in a random
  // order that `seed` determines.
  explicit EmulatedGpu(uint32_t seed = 0) : seed_(seed), random_(seed) {}

  using Body = std::function<void(const Thread&, void*)>;
  // Runs body(thread, shared memory) for each thread of each block, one block after another. Throws std::runtime_error
  // if `threads` is not a multiple of 32, or if a kernel breaks a rule of the GPU: divergent barriers, misaligned
  // accesses, asynchronous copies of more than 16 bytes, deadlock, or copies that are pending at the end.
  void run(Grid grid, int threads, size_t shared_bytes, const Body& body);

 private:
  friend class Thread;
  static constexpr size_t kStackBytes = 256 << 10;  // bytes of the stack of a fiber

  // A pending asynchronous copy to 16 bytes: the first `bytes` of them come from `from`, the others become 0.
  struct AsyncCopy {
    void* to;
    const void* from;
    size_t bytes;
  };
  // A point where the threads of a warp or of a block wait for one another.
  struct Rendezvous {
    int num_arrived = 0;
    uint64_t generation = 0;          // number of completed operations
    const char* operation = nullptr;  // name of the operation that threads wait in, for error messages
    void* arguments[32];              // argument of each lane, in a warp-wide operation
  };
  // The state of one thread.
  struct Fiber {
    Stack stack{kStackBytes};
    bool has_ended = false;
    const Rendezvous* rendezvous = nullptr;  // where the thread waits; null: the thread runs
    uint64_t generation = 0;  // rendezvous->generation when the wait began; its next change ends the wait
    std::vector<std::vector<AsyncCopy>> committed_groups;  // pending copies, oldest group first
    std::vector<AsyncCopy> open_group;                     // copies since the last commit_group()
  };

  static void enter() {
    EmulatedGpu* gpu = active_gpu();
    gpu->run_thread();
  }
  static EmulatedGpu*& active_gpu() {
    static thread_local EmulatedGpu* gpu = nullptr;
    return gpu;
  }
  void run_thread();
  Fiber& current_fiber() { return *fibers_[static_cast<size_t>(current_thread_)]; }
  void yield() { current_fiber().stack.switch_to(scheduler_); }
  void fail(const std::string& message) {
    if (failure_.empty()) failure_ = message;
    yield();
  }
  // noinline: otherwise gcc warns of string overflows.
  __attribute__((noinline)) void fail_divergence(const char* operation, const char* other_operation) {
    fail(std::string("expected all threads at the same operation; found one at ") + operation + " and one at " +
         other_operation);
  }
  // Waits until `count` threads have reached the operation `operation` at `point`; the last of them calls
  // action(point).
  template <class Action>
  void wait_for_all(Rendezvous& point, int count, const char* operation, const Action& action) {
    if (point.num_arrived > 0 && point.operation != operation) fail_divergence(operation, point.operation);
    point.operation = operation;
    if (++point.num_arrived == count) {
      action(point);
      point.num_arrived = 0, ++point.generation, ++progress_;
      return;
    }
    current_fiber().rendezvous = &point, current_fiber().generation = point.generation;
    yield();
    current_fiber().rendezvous = nullptr;
  }
  void run_block();

  uint32_t seed_;
  std::mt19937 random_;
  Stack scheduler_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Rendezvous> warp_rendezvous_;
  Rendezvous block_rendezvous_;
  Grid grid_, block_index_;
  int num_threads_ = 0, current_thread_ = 0;
  uint64_t progress_ = 0;  // number of completed operations and of ended threads
  const Body* body_ = nullptr;
  void* shared_ = nullptr;
  size_t shared_bytes_ = 0;
  std::string failure_;
};

// The operations of one emulated thread; cuda/thread.h documents them.
class Thread {
 public:
  Thread(EmulatedGpu& gpu, int index) : gpu_(gpu), index_(index) {}

  int lane() const { return index_ % 32; }
  int warp() const { return index_ / 32; }
  int index() const { return index_; }
  int threads() const { return gpu_.num_threads_; }
  int block_x() const { return gpu_.block_index_.x; }
  int block_y() const { return gpu_.block_index_.y; }
  int block_z() const { return gpu_.block_index_.z; }
  int blocks_x() const { return gpu_.grid_.x; }

  void barrier() const {
    gpu_.wait_for_all(gpu_.block_rendezvous_, gpu_.num_threads_, "a block barrier", [](EmulatedGpu::Rendezvous&) {});
  }
  void warp_barrier() const {
    int unused = 0;
    warp_operation("a warp barrier", unused, [](int*(&)[32]) {});
  }
  float shuffle_xor(float x, int lane_mask) const {
    struct Argument {
      float x, result;
      int lane_mask;
    } argument{x, 0, lane_mask};
    warp_operation("a warp shuffle", argument, [](Argument*(&lanes)[32]) {
      for (int i = 0; i < 32; ++i) lanes[i]->result = lanes[i ^ lanes[i]->lane_mask]->x;
    });
    return argument.result;
  }

  float exp2(float x) const { return std::exp2(x); }
  float log2(float x) const { return std::log2(x); }
  float log1p(float x) const { return std::log1p(x); }
  float tanh(float x) const { return std::tanh(x); }

  template <class T>
  uint32_t pack(float low, float high, T type) const {
    return narrow(low, type) | static_cast<uint32_t>(narrow(high, type)) << 16;
  }
  template <class T>
  void unpack(uint32_t x, float& low, float& high, T type) const {
    low = widen(static_cast<uint16_t>(x), type), high = widen(static_cast<uint16_t>(x >> 16), type);
  }
  // Rounds to nearest, ties away from zero.
  float round_tf32(float x) const { return std::isfinite(x) ? from_bits((bits_of(x) + 0x1000) & ~0x1FFFu) : x; }

  template <class T>
  void load_matrices(uint32_t (&to)[4], const T* row) const {
    load_matrices(to, row, "ldmatrix", [](int r, int c) { return std::pair(r, c); });
  }
  template <class T>
  void load_matrices_transposed(uint32_t (&to)[4], const T* row) const {
    load_matrices(to, row, "ldmatrix.trans", [](int r, int c) { return std::pair(c, r); });
  }

  // The fragments have the layouts of the PTX instructions mma.m16n8k16 for 16-bit elements and mma.m16n8k8 for tf32
  // elements.
  template <class T>
  void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], T type) const {
    const auto half = [type](uint32_t x, int i) { return widen(static_cast<uint16_t>(x >> 16 * i), type); };
    multiply_fragments<16>(
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
    const auto truncate = [](float x) { return from_bits(bits_of(x) & ~0x1FFFu); };
    multiply_fragments<8>(
        "mma.m16n8k8", c, a, b,
        [truncate](const float* x, int lane, double(&to)[16][8]) {
          for (int i = 0; i < 4; ++i) to[lane / 4 + i % 2 * 8][lane % 4 + i / 2 * 4] = truncate(x[i]);
        },
        [truncate](const float* x, int lane, double(&to)[8][8]) {
          for (int i = 0; i < 2; ++i) to[lane % 4 + i * 4][lane / 4] = truncate(x[i]);
        });
  }

  template <class T, size_t kCount>
  void store(void* to, const T (&x)[kCount]) const {
    if (reinterpret_cast<uintptr_t>(to) % sizeof x != 0)
      gpu_.fail("expected a vector store at an address that is a multiple of its size; found another");
    std::memcpy(to, x, sizeof x);
  }

  void store_if(bool condition, void* to, uint32_t x) const {
    if (!condition) return;
    if (reinterpret_cast<uintptr_t>(to) % sizeof x != 0)
      gpu_.fail("expected a 4-byte store at an address that is a multiple of 4; found another");
    std::memcpy(to, &x, sizeof x);
  }

  template <size_t kCount>
  void read(float (&to)[kCount], const float* from) const {
    if (reinterpret_cast<uintptr_t>(from) % sizeof to != 0)
      gpu_.fail("expected a vector load at an address that is a multiple of its size; found another");
    std::memcpy(to, from, sizeof to);
  }

  void copy_16_bytes(void* to, const void* from, int bytes) const {
    if (reinterpret_cast<uintptr_t>(to) % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0 || bytes < 0 ||
        bytes > 16)
      gpu_.fail(
          "expected an asynchronous copy of at most 16 bytes at addresses that are multiples of 16; found another");
    std::memset(to, 0xFF, 16);
    fiber().open_group.push_back({to, from, static_cast<size_t>(bytes)});
  }
  void commit_group() const { fiber().committed_groups.push_back(std::exchange(fiber().open_group, {})); }
  template <int kGroups>
  void wait_group() const {
    auto& groups = fiber().committed_groups;
    while (groups.size() > kGroups) {
      for (const EmulatedGpu::AsyncCopy& copy : groups.front()) {
        std::memset(copy.to, 0, 16);
        if (copy.bytes > 0) std::memcpy(copy.to, copy.from, copy.bytes);  // with 0 bytes, `from` may be null
      }
      groups.erase(groups.begin());
    }
  }

 private:
  EmulatedGpu::Fiber& fiber() const { return *gpu_.fibers_[static_cast<size_t>(index_)]; }

  // Waits until all lanes of the warp have reached the operation; the last of them calls action(arguments of all
  // lanes).
  template <class Argument, class Action>
  void warp_operation(const char* operation, Argument& argument, const Action& action) const {
    EmulatedGpu::Rendezvous& warp = gpu_.warp_rendezvous_[static_cast<size_t>(index_ / 32)];
    warp.arguments[lane()] = &argument;
    gpu_.wait_for_all(warp, 32, operation, [&](EmulatedGpu::Rendezvous& point) {
      Argument* lanes[32];
      for (int i = 0; i < 32; ++i) lanes[i] = static_cast<Argument*>(point.arguments[i]);
      action(lanes);
    });
  }

  // Loads four matrices (8, 8), as ldmatrix: element (r, c) of a loaded matrix is element element_of(r, c) of the
  // matrix in memory.
  template <class ElementOf>
  void load_matrices(uint32_t (&to)[4], const void* row, const char* operation, const ElementOf& element_of) const {
    if (reinterpret_cast<uintptr_t>(row) % 16 != 0)
      gpu_.fail("expected a row of ldmatrix at an address that is a multiple of 16; found another");
    struct Argument {
      uint32_t* to;
      const void* row;
    } argument{to, row};
    warp_operation(operation, argument, [&](Argument*(&lanes)[32]) {
      for (int m = 0; m < 4; ++m)
        for (int l = 0; l < 32; ++l) {
          uint16_t pair[2];
          for (int i = 0; i < 2; ++i) {
            const auto [r, c] = element_of(l / 4, l % 4 * 2 + i);
            pair[i] = static_cast<const uint16_t*>(lanes[m * 8 + r]->row)[c];
          }
          lanes[l]->to[m] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
        }
    });
  }

  // Computes c (16, 8) += a (16, kInner) · b (kInner, 8). Like tensor cores, truncates the sums to fp32 towards zero,
  // so that the errors of a long chain of products accumulate (Fasi et al. 2021, Numerical behavior of NVIDIA tensor
  // cores). `scatter_a` and `scatter_b` write the elements of a lane's fragment to the matrix.
  template <int kInner, class A, class B, class X>
  void multiply_fragments(const char* operation, float (&c)[4], const X (&a)[4], const X (&b)[2], const A& scatter_a,
                          const B& scatter_b) const {
    struct Argument {
      float* c;
      const X *a, *b;
    } argument{c, a, b};
    warp_operation(operation, argument, [&](Argument*(&lanes)[32]) {
      double matrix_a[16][kInner], matrix_b[kInner][8];
      for (int l = 0; l < 32; ++l) scatter_a(lanes[l]->a, l, matrix_a), scatter_b(lanes[l]->b, l, matrix_b);
      for (int l = 0; l < 32; ++l)
        for (int i = 0; i < 4; ++i) {
          double sum = lanes[l]->c[i];
          for (int k = 0; k < kInner; ++k) sum += matrix_a[l / 4 + i / 2 * 8][k] * matrix_b[k][l % 4 * 2 + i % 2];
          const auto rounded = static_cast<float>(sum);
          lanes[l]->c[i] = std::fabs(rounded) > std::fabs(sum) ? std::nextafter(rounded, 0.0F) : rounded;
        }
    });
  }

  EmulatedGpu& gpu_;
  int index_;
};

inline void EmulatedGpu::run_thread() {
  current_fiber().stack.complete_first_switch(scheduler_);
  (*body_)(Thread(*this, current_thread_), shared_);
  // A thread must not end with pending copies, which could overwrite what other threads write to shared memory later.
  auto pending_groups = current_fiber().committed_groups;
  pending_groups.push_back(current_fiber().open_group);
  for (const auto& group : pending_groups)
    if (!group.empty()) fail("expected no pending copies at the end of a thread; found some; call wait_group<0>()");
  current_fiber().has_ended = true, ++progress_;
  current_fiber().stack.switch_to(scheduler_, true);
}

inline void EmulatedGpu::run_block() {
  std::memset(shared_, 0xFF, shared_bytes_);
  warp_rendezvous_.assign(static_cast<size_t>(num_threads_ / 32), {});
  block_rendezvous_ = {};
  for (auto& fiber : fibers_) {
    fiber->has_ended = false, fiber->rendezvous = nullptr, fiber->committed_groups.clear(), fiber->open_group.clear();
    fiber->stack.prepare(&EmulatedGpu::enter);
  }
  std::vector<int> order(static_cast<size_t>(num_threads_));
  for (int i = 0; i < num_threads_; ++i) order[static_cast<size_t>(i)] = seed_ == 1 ? num_threads_ - 1 - i : i;
  for (;;) {
    if (seed_ > 1) std::shuffle(order.begin(), order.end(), random_);
    const uint64_t previous_progress = progress_;
    bool is_any_running = false;
    for (int i : order) {
      Fiber& fiber = *fibers_[static_cast<size_t>(i)];
      if (fiber.has_ended) continue;
      is_any_running = true;
      if (fiber.rendezvous != nullptr && fiber.rendezvous->generation == fiber.generation) continue;
      current_thread_ = i;
      scheduler_.switch_to(fiber.stack);
      if (!failure_.empty()) throw std::runtime_error(failure_);
    }
    if (!is_any_running) return;
    if (progress_ == previous_progress)
      throw std::runtime_error("expected all threads at a barrier; found ended threads");
  }
}

inline void EmulatedGpu::run(Grid grid, int threads, size_t shared_bytes, const Body& body) {
  grid_ = grid, num_threads_ = threads, body_ = &body, shared_bytes_ = shared_bytes;
  active_gpu() = this;
  if (threads % 32 != 0)
    throw std::runtime_error("expected a multiple of 32 threads in a block; found " + std::to_string(threads));
  while (fibers_.size() < static_cast<size_t>(threads)) fibers_.push_back(std::make_unique<Fiber>());
  fibers_.resize(static_cast<size_t>(threads));
  // Allocates the requested bytes, rounded up to a multiple of 16, so that the address sanitizer detects accesses past
  // the end.
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(16, mh::round_up(shared_bytes, 16)),
                                                           &std::free);
  shared_ = memory.get();
  for (block_index_.z = 0; block_index_.z < grid.z; ++block_index_.z)
    for (block_index_.y = 0; block_index_.y < grid.y; ++block_index_.y)
      for (block_index_.x = 0; block_index_.x < grid.x; ++block_index_.x) run_block();
}

}  // namespace host
