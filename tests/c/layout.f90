! tandem_array() describes an array where it is: dimensions reversed, sections by strides, nothing copied.
program layout
  use tandem
  use, intrinsic :: iso_fortran_env, only: real32, real64, int32, int64
  implicit none
  real(real64), target :: u(6, 5, 4), five(2, 3, 2, 3, 2)
  real(real32), target :: s(3)
  integer(int64), target :: one(2, 1, 3)
  integer(int32), target :: labels(8)
  integer :: failures = 0
  call expect('whole', tandem_array(u), [4, 5, 6], [0, 0, 0], 2)
  call expect('section', tandem_array(u(2:5, ::2, 2:3)), [2, 3, 4], [30, 12, 1], 2)
  call expect('plane', tandem_array(u(:, 3, :)), [4, 6], [30, 1], 2)
  call expect('reversed', tandem_array(u(6:1:-1, 1, 1)), [6], [-1], 2)
  call expect('vector', tandem_array(s), [3], [0], 1)
  call expect('one element', tandem_array(one(:, :, 1:3:2)), [2, 1, 2], [4, 1, 1], 4)
  call expect('labels', tandem_array(labels(1:7:3)), [3], [3], 3)
  call expect('five', tandem_array(five(:, 1:3:2, :, :, 2:1:-1)), [2, 3, 2, 2, 2], [-36, 12, 6, 4, 1], 2)
  call expect('empty', tandem_array(u(:, 3:2, ::2)), [2, 0, 6], [0, 0, 0], 2)
  if (failures > 0) error stop 1
  print '(a)', 'ok'
contains
  subroutine expect(name, a, dims, strides, dtype)
    character(*), intent(in) :: name
    type(tandem_array_t), intent(in) :: a
    integer, intent(in) :: dims(:), strides(:), dtype
    if (a%rank == size(dims) .and. a%dtype == dtype) then
      if (all(a%dims(1:size(dims)) == dims) .and. all(a%strides(1:size(dims)) == strides)) return
    end if
    failures = failures + 1
    print '(2a, 12i6)', 'wrong: ', name, a%dtype, a%rank, a%dims(1:5), a%strides(1:5)
  end subroutine
end program
