// integer.h for each type of integers.
#define TYPE int64_t
#define J(name) name##_i64
#include "integer.h"
#undef TYPE
#undef J
#define TYPE int32_t
#define J(name) name##_i32
#include "integer.h"
#undef TYPE
#undef J
#define TYPE int8_t
#define J(name) name##_i8
#include "integer.h"
#undef TYPE
#undef J
#define TYPE uint8_t
#define J(name) name##_u8
#include "integer.h"
#undef TYPE
#undef J
