package bus

import "encoding/json"

// Taken decodes a message and checks it, as a reader of the topic does, and encodes it again.
func (s State[T]) Taken(key string, data []byte) ([]byte, error) { return taken(s.check, key, data) }

// Taken is State.Taken for events.
func (e Event[T]) Taken(key string, data []byte) ([]byte, error) { return taken(e.check, key, data) }

func taken[T any](sense *check[T], key string, data []byte) ([]byte, error) {
	var v T
	if err := decode(data, &v); err != nil {
		return nil, err
	}
	if err := sense.of(key, v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// Readable is the check of a message's schema by a reader of the topic.
func Readable[T any](s State[T], m Message, reader string) error { return s.readable(m, reader) }
