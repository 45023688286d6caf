/* unwind_shapes.h: calls of many shapes, compiled with frame pointers and without. */
#pragma once

#include <stdint.h>

typedef void bottom_function(void *argument);

#define SHAPES_ALL 8u
#define SHAPES_UNALIGNED 6u /* without those that align the stack: about their ends gcc 12 says what is not so */

/* `depth` calls below each other, of shapes drawn from seed, then at_bottom(argument). */
typedef void shapes_function(unsigned depth, unsigned kinds, uint64_t seed, bottom_function *at_bottom, void *argument);
shapes_function shapes_with_pointers, shapes_without_pointers;

/* The same, each call from the same place in one function. */
typedef void plain_function(unsigned depth, bottom_function *at_bottom, void *argument);
plain_function plain_with_pointers, plain_without_pointers;
