"""Lists that people keep as files: sellers to be priced, offers to be booked."""
