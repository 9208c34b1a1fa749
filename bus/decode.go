package bus

import (
	"bytes"
	"encoding/json"
	"errors"
)

// decode reads a payload. JSON's null, which the decoder would take for an empty value, is no payload.
func decode(data []byte, into any) error {
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return errors.New("the payload is null")
	}
	return json.Unmarshal(data, into)
}

// check finds values that make no sense although they can be decoded.
type check[T any] struct{ sense func(key string, v T) error }

func (c *check[T]) of(key string, v T) error {
	if c == nil {
		return nil
	}
	return c.sense(key, v)
}
