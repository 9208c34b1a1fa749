package status

// queue is a list of keys, oldest first, in which each key is at most once.
type queue struct {
	keys []string
	has  map[string]bool
}

func (q *queue) add(key string) {
	if !q.has[key] {
		q.has[key] = true
		q.keys = append(q.keys, key)
	}
}

// take removes and returns the oldest key that ok accepts, or "".
func (q *queue) take(ok func(key string) bool) string {
	for i, key := range q.keys {
		if ok(key) {
			q.keys = append(q.keys[:i:i], q.keys[i+1:]...)
			delete(q.has, key)
			return key
		}
	}
	return ""
}

func (q *queue) clear() {
	q.keys = q.keys[:0]
	clear(q.has)
}
