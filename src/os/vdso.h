/* vdso.h: the functions that the kernel maps into each process, found without libc: another library or the program may
 * have put its own function in the place of libc's. */
#pragma once

/* Returns the function of the kernel, or NULL. Takes no lock, allocates nothing. */
void *os_vdso_function(const char *name);
