package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// inParallel does n pieces of work on all cores and returns the error of the first piece that has one.
func inParallel(n int, work func(int) error) error {
	failed := make([]error, n)
	var next int64 = -1
	var all sync.WaitGroup
	for core := 0; core < runtime.NumCPU(); core++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for {
				piece := int(atomic.AddInt64(&next, 1))
				if piece >= n {
					return
				}
				failed[piece] = guarded(work, piece)
			}
		}()
	}
	all.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// guarded makes an error of a panic: the program would end with 2, which says that everything holds.
func guarded(work func(int) error, piece int) (err error) {
	defer func() {
		if failed := recover(); failed != nil {
			err = fmt.Errorf("%v", failed)
		}
	}()
	return work(piece)
}
