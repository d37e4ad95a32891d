package order

// Scanning returns the filter with another bound of how many orders one call
// looks at.
func (f Filter) Scanning(rows int) Filter {
	f.scan = rows
	return f
}

// Gates is gates.
var Gates = gates
