// Package each makes a list by one function of every element, as the loops would that differ only in that function.
package each

// Of returns what fn makes of every element of list.
func Of[T, U any](list []T, fn func(T) U) []U {
	out := make([]U, len(list))
	for i, e := range list {
		out[i] = fn(e)
	}
	return out
}

// UpTo returns what fn makes of every number from 0 to n - 1.
func UpTo[U any](n int, fn func(i int) U) []U {
	out := make([]U, n)
	for i := range out {
		out[i] = fn(i)
	}
	return out
}
