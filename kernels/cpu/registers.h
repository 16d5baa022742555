// Vectors of more elements than a register holds, as pairs of vectors of half as many elements. The compiler's own
// vectors may be wider than a register, but g++ 12 then keeps them in memory: attention with AVX2 took 11 to 23 times
// as long.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#define MH_INLINE inline __attribute__((always_inline))
// Unrolls the next loop, over an array of vectors, so that the array is kept in registers.
#if defined(__clang__)
#define MH_UNROLL _Pragma("unroll")
#else
#define MH_UNROLL _Pragma("GCC unroll 16")
#endif

namespace mh::kernels {

#if defined(__AVX512F__)
constexpr int kRegisterBytes = 64;
#elif defined(__AVX2__)
constexpr int kRegisterBytes = 32;
#else
constexpr int kRegisterBytes = 16;
#endif

// The first and the second half of the elements of a vector.
template <class Half>
struct Pair {
  Half low, high;
};
template <class V>
constexpr bool is_pair = false;
template <class Half>
constexpr bool is_pair<Pair<Half>> = true;

// Maximum number of elements of a compiler vector of T. Elements of less than 32 bits count as 32 bits, so that vectors
// of as many elements have the same halves, and convert() changes each element in place.
template <class T>
constexpr int kRegisterElements = kRegisterBytes / static_cast<int>(sizeof(T) < 4 ? 4 : sizeof(T));

template <class T, int count, bool fits_register = count <= kRegisterElements<T>>
struct VectorOf {
  using type = Pair<typename VectorOf<T, count / 2>::type>;
};
template <class T, int count>
struct VectorOf<T, count, true> {
  typedef T type __attribute__((vector_size(count * sizeof(T))));
};

// A vector of `count` elements, a power of two: a vector of the compiler if it fits a register, otherwise a Pair. Pairs
// have the operators below, which act on each element, like the operators of the compiler's vectors.
template <class T, int count>
using Vector = typename VectorOf<T, count>::type;

template <class V>
struct ElementOf {
  using type = std::remove_cvref_t<decltype(V{}[0])>;
};
template <class Half>
struct ElementOf<Pair<Half>> : ElementOf<Half> {};
template <class V>
using Element = typename ElementOf<V>::type;
// Number of elements of a vector.
template <class V>
constexpr int kElements = static_cast<int>(sizeof(V) / sizeof(Element<V>));

// A scalar that an operator may combine with a vector of elements of type E: of this type, or of an integer type of at
// most 32 bits.
template <class S, class E>
concept ScalarFor = std::is_same_v<S, E> ||(std::is_integral_v<S> && sizeof(S) <= 4);

// Defines the operator `op` of two pairs, and of a pair and a scalar. A comparison returns a pair of integers whose
// bits are all 1 where it holds, otherwise all 0.
#define MH_PAIR_OPERATOR(op)                                                   \
  template <class V>                                                           \
  MH_INLINE auto operator op(const Pair<V>& a, const Pair<V>& b) {             \
    return Pair<decltype(a.low op b.low)>{a.low op b.low, a.high op b.high};   \
  }                                                                            \
  template <class V>                                                           \
  MH_INLINE auto operator op(const Pair<V>& a, ScalarFor<Element<V>> auto b) { \
    const auto x = static_cast<Element<V>>(b);                                 \
    return Pair<decltype(a.low op x)>{a.low op x, a.high op x};                \
  }                                                                            \
  template <class V>                                                           \
  MH_INLINE auto operator op(ScalarFor<Element<V>> auto a, const Pair<V>& b) { \
    const auto x = static_cast<Element<V>>(a);                                 \
    return Pair<decltype(x op b.low)>{x op b.low, x op b.high};                \
  }
MH_PAIR_OPERATOR(+)
MH_PAIR_OPERATOR(-)
MH_PAIR_OPERATOR(*)
MH_PAIR_OPERATOR(/)
MH_PAIR_OPERATOR(&)
MH_PAIR_OPERATOR(|)
MH_PAIR_OPERATOR(^)
MH_PAIR_OPERATOR(<<)
MH_PAIR_OPERATOR(>>)
MH_PAIR_OPERATOR(<)
MH_PAIR_OPERATOR(>)
MH_PAIR_OPERATOR(>=)
MH_PAIR_OPERATOR(==)
MH_PAIR_OPERATOR(!=)
#undef MH_PAIR_OPERATOR

template <class V>
MH_INLINE Pair<V> operator-(const Pair<V>& a) {
  return {-a.low, -a.high};
}
template <class V>
MH_INLINE Pair<V> operator~(const Pair<V>& a) {
  return {~a.low, ~a.high};
}
template <class V>
MH_INLINE Pair<V>& operator+=(Pair<V>& a, const Pair<V>& b) {
  return a = a + b;
}
template <class V>
MH_INLINE Pair<V>& operator-=(Pair<V>& a, const Pair<V>& b) {
  return a = a - b;
}
template <class V>
MH_INLINE Pair<V>& operator*=(Pair<V>& a, ScalarFor<Element<V>> auto b) {
  return a = a * b;
}
template <class V>
MH_INLINE Pair<V>& operator+=(Pair<V>& a, ScalarFor<Element<V>> auto b) {
  return a = a + b;
}
template <class V>
MH_INLINE Pair<V>& operator|=(Pair<V>& a, const Pair<V>& b) {
  return a = a | b;
}

// Returns a where the comparison `mask` holds, otherwise b. Scalars are allowed.
template <class Mask, class V>
MH_INLINE V select(const Mask& mask, const V& a, const V& b) {
  if constexpr (is_pair<V>) return {select(mask.low, a.low, b.low), select(mask.high, a.high, b.high)};
  else return mask ? a : b;
}

// Load and store the bits of a vector. `memory` needs no alignment.
template <class V>
MH_INLINE void load_vector(const void* memory, V& to) {
  if constexpr (is_pair<V>) {
    load_vector(memory, to.low);
    load_vector(static_cast<const char*>(memory) + sizeof to.low, to.high);
  } else {
    std::memcpy(&to, memory, sizeof to);
  }
}
template <class V>
MH_INLINE void store_vector(const V& from, void* memory) {
  if constexpr (is_pair<V>) {
    store_vector(from.low, memory);
    store_vector(from.high, static_cast<char*>(memory) + sizeof from.low);
  } else {
    std::memcpy(memory, &from, sizeof from);
  }
}

// Copies the bits of `from` to `to`, a vector of the same size.
template <class From, class To>
MH_INLINE void copy_bits(const From& from, To& to) {
  static_assert(sizeof(From) == sizeof(To) && is_pair<From> == is_pair<To>);
  if constexpr (is_pair<From>) {
    copy_bits(from.low, to.low);
    copy_bits(from.high, to.high);
  } else {
    std::memcpy(&to, &from, sizeof to);
  }
}

// Sets each element of `to` to the element of `from`, converted to its type.
template <class From, class To>
MH_INLINE void convert(const From& from, To& to) {
  static_assert(kElements<From> == kElements<To>);
  if constexpr (is_pair<From>) {
    convert(from.low, to.low);
    convert(from.high, to.high);
  } else {
    to = __builtin_convertvector(from, To);
  }
}

// Reduces the elements in pairs, for 16 elements 8 + 8, 4 + 4, 2 + 2, 1 + 1, in registers; a loop over the elements
// would go through memory.
template <class V, class Combine>
MH_INLINE Element<V> reduce(const V& v, const Combine& combine) {
  if constexpr (is_pair<V>) return reduce(combine(v.low, v.high), combine);
  else if constexpr (kElements<V> == 16)
    return reduce(combine(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7),
                          __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15)),
                  combine);
  else if constexpr (kElements<V> == 8)
    return reduce(combine(__builtin_shufflevector(v, v, 0, 1, 2, 3), __builtin_shufflevector(v, v, 4, 5, 6, 7)),
                  combine);
  else {
    static_assert(kElements<V> == 4);
    return combine(combine(v[0], v[2]), combine(v[1], v[3]));
  }
}

// Returns the index, in a followed by b, of element k of the interleaved halves of two vectors of n elements.
constexpr int interleaved_index(int run, bool is_high, int n, int k) {
  const int from_b = k / run % 2, element = k / (2 * run) * run + k % run;
  return from_b * n + (is_high ? n / 2 : 0) + element;
}
template <int run, bool is_high, class V, int... k>
MH_INLINE V interleave_registers(const V& a, const V& b, std::integer_sequence<int, k...>) {
  return __builtin_shufflevector(a, b, interleaved_index(run, is_high, kElements<V>, k)...);
}
// Interleaves runs of `run` elements of the first halves of a and b, or of the second halves if `is_high`: for a run of
// 2, a0 a1 b0 b1 a2 a3 b2 b3 …
template <int run, bool is_high, class V>
MH_INLINE V interleave(const V& a, const V& b) {
  if constexpr (!is_pair<V>)
    return interleave_registers<run, is_high>(a, b, std::make_integer_sequence<int, kElements<V>>());
  else if constexpr (is_high) return {interleave<run, false>(a.high, b.high), interleave<run, true>(a.high, b.high)};
  else return {interleave<run, false>(a.low, b.low), interleave<run, true>(a.low, b.low)};
}
template <class V>
MH_INLINE V interleave_low(const V& a, const V& b) {
  return interleave<1, false>(a, b);
}
template <class V>
MH_INLINE V interleave_high(const V& a, const V& b) {
  return interleave<1, true>(a, b);
}
template <class V>
MH_INLINE V interleave_pairs_low(const V& a, const V& b) {
  return interleave<2, false>(a, b);
}
template <class V>
MH_INLINE V interleave_pairs_high(const V& a, const V& b) {
  return interleave<2, true>(a, b);
}

}  // namespace mh::kernels
