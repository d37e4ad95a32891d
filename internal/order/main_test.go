package order_test

import (
	"testing"

	"github.com/siding-dev/siding/internal/db/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }
