// Go with C code: what the C side allocates is malloc's, and hakmem's when it is preloaded or linked; Go's own heap
// stays Go's.
//
//	go build main.go && hak run -- ./main
//	CGO_LDFLAGS="$(pkg-config --libs hakmem)" go build main.go    # linked
package main

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static const char *allocator(void) {
  const char *(*version)(void) = (const char *(*)(void))dlsym(RTLD_DEFAULT, "hak_version");
  return version ? version() : "libc";
}
static size_t in_use(void) { return mallinfo2().uordblks; }
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"
)

const (
	workers = 8
	lines   = 20000
)

// keep allocates lines in C, from one goroutine; free may be called by another.
func keep(worker int) []*C.char {
	kept := make([]*C.char, lines)
	for i := range kept {
		kept[i] = C.CString(fmt.Sprintf("worker %d, line %d of the lines that C keeps", worker, i))
	}
	return kept
}

func main() {
	var group sync.WaitGroup
	results := make(chan []*C.char, workers)
	for worker := 0; worker < workers; worker++ {
		group.Add(1)
		go func(worker int) {
			defer group.Done()
			results <- keep(worker)
		}(worker)
	}
	group.Wait()
	close(results)
	before, count, bytes := C.in_use(), 0, 0
	for kept := range results {
		for _, line := range kept {
			count++
			bytes += int(C.strlen(line))
			C.free(unsafe.Pointer(line))
		}
	}
	fmt.Println(count, "lines,", bytes, "bytes")
	fmt.Println(C.GoString(C.allocator())+",", before, "bytes in use,", C.in_use(), "after free")
}
